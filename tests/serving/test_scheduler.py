"""Continuous batching: a text does not depend on its company, on what is cached, or on how it was cut."""

import queue
import random
import threading

import pytest
import torch

from elman.errors import ElmanError
from elman.generation import GenerationConfig, generate
from elman.models import LanguageModel, StackConfig
from elman.ops.state import map_state
from elman.serving.generation import Failed, Finished, Generation, Piece, Scored
from elman.serving.row_engines import rows_for
from elman.serving.rows import TorchRows
from elman.serving.scheduler import QueueFull, Scheduler
from elman.serving.settings import ServeConfig
from elman.serving.slot_rows import SlotRows
from elman.tokenizers import train_tokenizer

TEXT = "the cat sat on the mat and the dog sat on the log. " * 3
PATTERNS = {
    "lstm": ["lstm"],
    "attention": [{"attention": {"num_heads": 2}}, "swiglu"],
    "mamba": ["mamba"],
    "hybrid": ["gru", "convolution"],
}


class Server:
    """A model with its scheduler, without a server."""

    def __init__(self, pattern=("lstm",), rows=None, **options):
        torch.manual_seed(1)
        self.tokenizer = train_tokenizer("character", [TEXT])
        config = StackConfig.make({"hidden_size": 8, "pattern": list(pattern)})
        self.model = LanguageModel(config, self.tokenizer.vocab_size).eval()
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.mul_(3)  # or all tokens are as likely
        self.outputs = queue.Queue()
        state = map_state(torch.clone, self.model.initial_state(1))
        marks = self.tokenizer.eos_id, self.tokenizer.start_id
        rows = rows or (lambda model: rows_for(model, ServeConfig()))
        self.scheduler = Scheduler(
            rows(self.model), state, *marks, lambda box: [*map(self.outputs.put, box)], **options
        )

    def generation(self, prompt, seed=0, limit=12, start=None, known=None, **options):
        settings = {name: options.pop(name) for name in [*options] if name in GenerationConfig.model_fields}
        tokens = [int(id) for id in self.tokenizer.encode(prompt)]
        known = known or ([*start.pending, *tokens] if start else [self.tokenizer.start_id, *tokens])
        config = GenerationConfig.make(settings)
        return Generation(known, config, self.tokenizer, limit=limit, seed=seed, start=start, **options)

    def read(self, generations):
        """All outputs of these texts."""
        found = {generation: [] for generation in generations}
        unfinished = set(generations)
        while unfinished:
            generation, output = self.outputs.get(timeout=60)
            if generation not in found:
                continue
            found[generation].append(output)
            if isinstance(output, Finished | Failed):
                unfinished.discard(generation)
        return [found[generation] for generation in generations]

    def run(self, *generations):
        forks = {fork for generation in generations for fork in generation.forks}
        self.scheduler.submit(object(), [one for one in generations if one not in forks])
        return self.read(generations)


@pytest.fixture
def server():
    made = []

    def make(*arguments, **options):
        made.append(Server(*arguments, **options))
        return made[-1]

    yield make
    for one in made:
        one.scheduler.close()


def slots(model):
    """What runs on a GPU."""
    return SlotRows(model, 4, block=1)


def pieces(outputs):
    return [(output.token, output.log_prob, output.top) for output in outputs if isinstance(output, Piece | Scored)]


def text(outputs):
    return "".join(output.text for output in outputs if isinstance(output, Piece | Finished))


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
@pytest.mark.parametrize("rows", [TorchRows, None, slots], ids=["torch", "chosen", "slots"])
def test_a_text_does_not_depend_on_its_company(server, pattern, rows):
    work = [("the cat", 1, 9), ("", 2, 20), ("a", 3, 1), (TEXT[:70], 4, 7), ("sat", 5, 15), ("the cat", 6, 12)]
    alone = server(pattern, rows, cache_bytes=0)
    expected = [pieces(alone.run(alone.generation(prompt, seed, limit, top=2))[0]) for prompt, seed, limit in work]
    crowd = server(pattern, rows, max_rows=4)
    texts = [crowd.generation(prompt, seed, limit, top=2) for prompt, seed, limit in work]
    order = list(range(len(work)))
    random.Random(0).shuffle(order)
    for number in order:
        threading.Timer(0.002 * number, crowd.scheduler.submit, [number, [texts[number]]]).start()
    assert [pieces(outputs) for outputs in crowd.read(texts)] == expected


@pytest.mark.parametrize(
    "settings", [{}, {"temperature": 0.0}, {"top_p": 0.7, "temperature": 1.3, "repetition_penalty": 1.2}]
)
def test_a_text_is_that_of_generate(server, settings):
    one = server()
    (outputs,) = one.run(one.generation("the ", seed=3, limit=30, **settings))
    config = GenerationConfig.make(settings | {"seed": 3, "max_tokens": 30})
    assert text(outputs) == generate(one.model, one.tokenizer, "the ", config)


def test_a_text_can_be_cut_anywhere_and_go_on(server):
    one = server()
    whole = pieces(one.run(one.generation("the cat", limit=12, temperature=0.0))[0])
    for cut in (1, 5, 11):
        first = one.generation("the cat", limit=cut, temperature=0.0, keep=True)
        (outputs,) = one.run(first)
        snapshot = outputs[-1].snapshot
        assert snapshot.position == 1 + len("the cat") + cut - 1
        rest = one.run(one.generation("", limit=12 - cut, temperature=0.0, start=snapshot))[0]
        assert pieces(outputs) + pieces(rest) == whole
        assert text(outputs) + text(rest) == one.tokenizer.decode([token for token, *_ in whole])


def test_texts_after_one_prompt_read_it_once(server):
    one = server(cache_bytes=0)
    expected = [pieces(one.run(one.generation("the cat", stream=stream))[0]) for stream in range(3)]
    others = [one.generation("the cat", stream=stream) for stream in (1, 2)]
    first = one.generation("the cat", forks=others)
    assert [pieces(outputs) for outputs in one.run(first, *others)] == expected
    assert [fork.cached for fork in others] == [len("the cat")] * 2


WORK = [
    {"prompt": TEXT[:150], "limit": 21, "top": 2},
    {"prompt": TEXT[:150], "limit": 5, "temperature": 0.0, "keep": True},
    {"prompt": "the cat", "limit": 40, "stop": ["a", "o"], "keep": True},
    {"prompt": "the cat", "limit": 40, "stop": ["at", "og"], "seed": 3},
    {"prompt": TEXT[:40], "limit": 0, "scored": True, "keep": True},
    {"prompt": "on the log", "limit": 33, "scored": True, "top": 3, "stop_at_end": False, "keep": True},
    {"prompt": "", "limit": 17, "repetition_penalty": 1.4, "top_p": 0.8, "keep": True},
    {"prompt": TEXT[:64], "limit": 50, "seed": 7, "keep": True},
]


@pytest.mark.parametrize("cache_bytes", [0, 2**26])
def test_plans_of_several_steps_give_what_single_steps_give(server, cache_bytes):
    """Scores, stop strings, ends, forks, snapshots and cached beginnings."""
    found = []
    for rows in (TorchRows, slots):
        one = server(["lstm"], rows, cache_bytes=cache_bytes, max_rows=4)
        others = [one.generation("the mat", stream=stream, limit=20) for stream in (1, 2)]
        texts = [one.generation(**work) for work in WORK] + [one.generation("the mat", limit=20, forks=others), *others]
        outputs = one.run(*texts)
        rest = [one.generation("a", start=last.snapshot) for *_, last in outputs if last.snapshot]
        assert len(rest) == 6
        found.append([*outputs, *one.run(*rest)])
    for ours, theirs in zip(*found, strict=True):
        assert pieces(ours) == pieces(theirs)
        assert (text(ours), ours[-1].reason) == (text(theirs), theirs[-1].reason)


def test_texts_after_one_prompt_come_where_it_was_cached(server):
    one = server()
    one.run(one.generation("the cat"))
    others = [one.generation("the cat", stream=1)]
    assert len(one.run(one.generation("the cat", forks=others), *others)) == 2


def test_a_common_beginning_is_read_once_and_changes_nothing(server):
    cold, warm = server(cache_bytes=0), server()
    prompt = TEXT[:100]
    for end in ("", " x", " the dog"):
        (expected,) = cold.run(cold.generation(prompt + end))
        again = warm.generation(prompt + end)
        (outputs,) = warm.run(again)
        assert pieces(outputs) == pieces(expected)
    assert again.cached == 64
    repeated = warm.generation(prompt)
    warm.run(repeated)
    assert repeated.cached == len(prompt)
    stranger = warm.generation(prompt, owner="another")
    warm.run(stranger)
    assert stranger.cached == 0


@pytest.mark.parametrize("length", [1, 2, 62, 63, 64, 65, 127, 128, 129])
def test_prompts_of_any_length_are_cached(server, length):
    one = server()
    first, again = (one.generation((TEXT * 2)[:length]) for _ in range(2))
    assert len(expected := pieces(one.run(first)[0])) > 0
    assert pieces(one.run(again)[0]) == expected
    assert again.cached == (length if length > 1 else 0)


def test_known_tokens_are_scored(server):
    one = server()
    scored = one.generation(TEXT[:40], limit=0, scored=True, top=3)
    (outputs,) = one.run(scored)
    tokens = torch.tensor([scored.known])
    with torch.inference_mode():
        logits = one.model(tokens, one.model.initial_state(1), torch.tensor([tokens.shape[1]]))[0].log_softmax(-1)
    found = [output for output in outputs if isinstance(output, Scored)]
    assert [output.token for output in found] == scored.known[1:]
    for place, output in enumerate(found):
        assert output.log_prob == pytest.approx(float(logits[0, place, output.token]), abs=1e-5)
        assert [token for token, _ in output.top] == logits[0, place].topk(3).indices.tolist()


def test_a_token_has_the_same_log_probability_as_drawn_and_as_listed(server):
    """To the last bit: evaluation suites take a token for the greedy one where both are equal."""
    one = server()
    drawn = one.run(*(one.generation("the", seed=seed, limit=30, top=40) for seed in range(4)))
    scored = one.run(one.generation(TEXT[:100], limit=0, scored=True, top=40))
    for token, log_prob, top in (piece for outputs in (*drawn, *scored) for piece in pieces(outputs)):
        assert dict(top)[token] == log_prob


def test_stop_strings_and_the_end_finish_a_text(server):
    one = server()
    (plain,) = one.run(one.generation("the", seed=1, limit=40))
    stop = text(plain)[5:8]
    (stopped,) = one.run(one.generation("the", seed=1, limit=40, stop=[stop]))
    assert stopped[-1].reason == "stop"
    assert text(stopped) == text(plain)[: text(plain).index(stop)]


def test_a_state_after_a_stop_string_is_that_where_the_text_stops(server):
    """Catches: tokens that were drawn before the text was known to stop."""
    one = server()
    (plain,) = one.run(one.generation("the", seed=1, limit=40))
    drawn = [output.token for output in plain if isinstance(output, Piece)]
    stop = text(plain)[5:8]
    kept = one.generation("the", seed=1, limit=40, stop=[stop], keep=True)
    others = [one.generation("a", seed=2, limit=300, stop_at_end=False) for _ in range(3)]
    stopped, *_ = one.run(kept, *others)
    length = sum(isinstance(output, Piece) for output in stopped)
    snapshot = stopped[-1].snapshot
    assert (snapshot.position, snapshot.pending) == (1 + len("the") + length - 1, (drawn[length - 1],))
    known = [one.tokenizer.start_id, *one.tokenizer.encode("the"), *drawn[:length]]
    (expected,) = one.run(one.generation("", seed=5, known=[*map(int, known)]))
    assert pieces(one.run(one.generation("", seed=5, start=snapshot))[0]) == pieces(expected)


@pytest.mark.parametrize("rows", [TorchRows, None], ids=["torch", "chosen"])
def test_tokens_that_come_together_are_delivered_together(server, rows):
    """The first by itself; all of them with the last."""
    boxes = queue.Queue()
    one = server(rows=rows, interval=1000.0)
    one.scheduler.deliver = boxes.put
    one.scheduler.submit(0, [one.generation("the", limit=300, stop_at_end=False)])
    first, rest = boxes.get(timeout=60), boxes.get(timeout=60)
    assert 1 <= len(first) < 300
    assert len(first) + len(rest) == 301


def test_a_cancelled_text_gives_nothing_more_and_frees_its_row(server):
    one = server(max_rows=1)
    endless, next_one = one.generation("the", limit=10**6, stop_at_end=False), one.generation("a")
    one.scheduler.submit("first", [endless])
    one.outputs.get(timeout=60)
    one.scheduler.cancel([endless])
    assert one.run(next_one)
    assert not one.scheduler.running


def test_requests_take_turns(server):
    one = server(max_rows=1)
    many = [one.generation("the", limit=3) for _ in range(5)]
    blocker, single = one.generation("a", limit=400, stop_at_end=False), one.generation("a", limit=3)
    one.scheduler.submit("blocker", [blocker])
    one.scheduler.submit("many", many)
    one.scheduler.submit("single", [single])
    order = []
    while len(order) < 7:
        generation, output = one.outputs.get(timeout=60)
        order += [generation] * isinstance(output, Finished)
    assert order.index(single) == 2  # after the blocker and one of the many


def test_a_full_queue_is_refused(server):
    one = server(max_rows=1, max_queue=2)
    texts = [one.generation("the", limit=10**6, stop_at_end=False) for _ in range(4)]
    one.scheduler.submit(0, texts[:1])
    one.outputs.get(timeout=60)  # it runs
    one.scheduler.submit(1, texts[1:2])
    one.scheduler.submit(2, texts[2:3])
    with pytest.raises(QueueFull, match="2 requests are waiting"):
        one.scheduler.submit(3, texts[3:])
    one.scheduler.cancel(texts)


def test_invalid_logits_fail_one_text_only(server):
    one = server(rows=TorchRows)
    broken, good = one.generation("d", limit=30, seed=1), one.generation("the", limit=200, seed=1, stop_at_end=False)
    expected = pieces(one.run(one.generation("the", limit=200, seed=1, stop_at_end=False))[0])
    choose = one.scheduler.rows.choose

    def spoil(draws):
        choices = choose(draws)
        return [ElmanError("invalid logits") if d.row == broken.row else c for d, c in zip(draws, choices, strict=True)]

    one.scheduler.rows.choose = spoil
    fork = one.generation("d", stream=1)
    broken.forks = [fork]
    found, other = one.run(broken, good)
    assert isinstance(found[-1], Failed)
    assert pieces(other) == expected


def test_a_failing_step_fails_all_texts_and_the_next_ones_run(server):
    one = server(rows=TorchRows)
    step, calls = one.scheduler.rows.step, []

    def fail_once(feeds):
        calls.append(feeds)
        if len(calls) == 2:
            raise RuntimeError("out of memory")
        step(feeds)

    one.scheduler.rows.step = fail_once
    assert isinstance(one.run(one.generation("the"))[0][-1], Failed)
    assert isinstance(one.run(one.generation("the"))[0][-1], Finished)


def test_closing_fails_what_runs_and_waits(server):
    one = server(max_rows=1)
    texts = [one.generation("the", limit=10**6, stop_at_end=False) for _ in range(2)]
    one.scheduler.submit(0, texts)
    one.outputs.get(timeout=60)
    one.scheduler.close()
    assert [outputs[-1].__class__ for outputs in one.read(texts)] == [Failed, Failed]
    with pytest.raises(QueueFull, match="stopping"):
        one.scheduler.submit(1, texts)
