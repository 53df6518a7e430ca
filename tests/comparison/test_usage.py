"""What the use of a model takes: speed by a clock that does not lie, and the bytes it carries on."""

from functools import partial
from itertools import islice, pairwise

import pytest
import torch

from elman.comparison import inference_cost
from elman.generation import GenerationConfig
from elman.generation.engine import explain
from elman.models import Classifier, ClassifierConfig, EncoderDecoder, EncoderDecoderConfig, LanguageModel
from elman.models.stack import StackConfig
from elman.pipeline.tasks import TASKS
from elman.pipeline.tasks.language_model.task import GENERATED, _generated
from elman.pipeline.tasks.race import CONTEXTS
from elman.pipeline.tasks.texts import stack_state
from elman.pipeline.tasks.translate.race import _state_after

WIDTH = 8


def translator(**sides):
    settings = {
        side: {"hidden_size": WIDTH, "pattern": ["lstm"], **sides.get(side, {})} for side in ("encoder", "decoder")
    }
    return EncoderDecoder(EncoderDecoderConfig.make(settings), 5, 6, 0).eval()


def bytes_of(model, contexts=CONTEXTS[:-1]):
    state_after = partial(stack_state, model) if isinstance(model, Classifier) else partial(_state_after, model)
    found = inference_cost.state_bytes(model, state_after, contexts)
    assert [one["tokens"] for one in found] == [*contexts]
    return [one["bytes"] for one in found]


def test_a_translation_without_attention_carries_the_same_whatever_its_length():
    sizes = bytes_of(translator(decoder={"attention": None, "context": ["state"]}))
    assert set(sizes) == {2 * WIDTH * 4}  # hidden and cell of one layer, in float32


def test_a_translation_that_looks_back_carries_its_source():
    """Catches the state before a source without words."""
    sizes = bytes_of(translator(decoder={"attention": {"score": "dot"}, "context": ["state"]}))
    assert sizes == sorted(set(sizes))
    steps = zip(pairwise(sizes), pairwise(CONTEXTS[:-1]), strict=True)
    assert len({(after - before) / (longer - shorter) for (before, after), (shorter, longer) in steps}) == 1


def test_a_classifier_that_reads_one_way_carries_the_state_of_its_layers():
    model = Classifier(ClassifierConfig.make({"pattern": ["lstm", "gru"], "hidden_size": WIDTH}), 9, 2).eval()
    assert set(bytes_of(model, (1, 16, 64))) == {3 * WIDTH * 4}


def test_writing_is_timed_as_it_is_done(monkeypatch):
    """Not by steps of torch, where there is machine code. Catches: a loop over `model.step`."""
    model = LanguageModel(StackConfig.make({"pattern": ["gru"], "hidden_size": WIDTH}), 9).eval()
    with inference_cost.inference_mode(model):
        told = explain(model, GenerationConfig(max_tokens=GENERATED))
        if not told.startswith("native"):
            pytest.skip(told)
        steps = []
        monkeypatch.setattr(model, "step", lambda *given: steps.append(given) or LanguageModel.step(model, *given))
        assert sum(islice(_generated(model), 500)) == 500
    assert len(steps) < 5


def test_speed_leaves_the_first_turn_out_and_counts_all_units(monkeypatch):
    """A turn takes a tenth of a second, the first a thousand. Catches the first one counted."""
    now = [0.0]
    monkeypatch.setattr(inference_cost.time, "monotonic", lambda: now[0])

    def work():
        now[0] += 1000
        yield 3
        while True:
            now[0] += 0.1
            yield 5

    assert inference_cost.speed(torch.nn.Linear(1, 1), work()) == pytest.approx(50)


def test_every_task_says_which_costs_it_has():
    assert all(TASKS[task].cost_note for task in TASKS)
