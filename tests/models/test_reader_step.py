"""A reader of texts as a step gives what it gives for each prefix of a text.

Seen to fail: with scores that were not divided by the sum of weights, and a maximum that began at zero.
"""

import pytest
import torch

from elman.batches.examples import Ragged
from elman.errors import ConfigError
from elman.models import Classifier, ClassifierConfig
from elman.models.reader_step import ReaderStep


def model_of(pooling, *pattern, **settings):
    torch.manual_seed(0)
    config = ClassifierConfig.make({"hidden_size": 6, "pattern": [*pattern], "pooling": pooling, **settings})
    return Classifier(config, 9, 3).eval()


@pytest.mark.parametrize("pooling", ["last", "mean", "max", "attention"])
@torch.no_grad()
def test_steps_give_the_logits_of_each_prefix(pooling):
    model = model_of(pooling, "gru", {"attention": {"context": 3}}, head_size=4)
    model.output.bias.normal_()
    tokens = torch.randint(9, (2, 12))
    reader, found = ReaderStep(model), []
    state = reader.initial_state(2)
    for token in tokens.unbind(1):
        logits, state = reader.step(token, state)
        found.append(logits)
    right = model.running_logits(Ragged(tokens, torch.tensor([12, 12])))
    torch.testing.assert_close(torch.stack(found, 1), right, rtol=1e-5, atol=1e-5)
    empty = model.logits(Ragged(tokens[:1, :0], torch.tensor([0])))
    torch.testing.assert_close(reader.start, empty)


def test_a_model_that_reads_from_both_sides_has_no_steps():
    with pytest.raises(ConfigError, match=r"both sides \(bidirectional\)"):
        ReaderStep(model_of("last", {"bidirectional": {"layer": "gru"}}))
