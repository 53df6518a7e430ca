"""Tables of n-grams from files: arrays that searches cannot rely on are rejected before anything reads them."""

from collections.abc import Callable

import pytest
import torch
from ngram_cases import VOCABULARY, fitted, regular
from torch import Tensor

from elman.compiler.cpu.step import Runner, compile_step
from elman.compiler.errors import CannotCompile
from elman.errors import CheckpointError, DataError
from elman.models.ngram import NGram, read_arpa
from elman.runs import Checkpoint

MODEL = fitted(regular(), order=3)
HOSTILE: dict[str, tuple[str, Callable[[Tensor], Tensor], str]] = {
    "keys far outside": ("orders.1.keys", lambda keys: keys + 2**40, "do not rise"),
    "one key too large": ("orders.1.keys", lambda keys: changed(keys, -1, VOCABULARY**2), "do not rise"),
    "a negative key": ("orders.1.keys", lambda keys: changed(keys, 0, -1), "do not rise"),
    "keys out of order": ("orders.2.keys", lambda keys: keys.flip(0), "do not rise"),
    "keys of which two are equal": ("orders.2.keys", lambda keys: changed(keys, 1, int(keys[0])), "do not rise"),
    "keys of unigrams": ("orders.0.keys", lambda keys: torch.zeros(3, dtype=torch.int64), "shape"),
    "keys in two axes": ("orders.1.keys", lambda keys: keys.unsqueeze(0), "shape"),
    "a number as keys": ("orders.1.keys", lambda keys: keys[0], "shape"),
    "keys that are not numbers": ("orders.1.keys", lambda keys: keys * torch.nan, "another type"),
    "too few log-probabilities": ("orders.1.log_prob", lambda values: values[:3], "shape"),
    "too many log-probabilities": ("orders.2.log_prob", lambda values: values.repeat(2), "shape"),
    "no log-probabilities of words": ("orders.0.log_prob", lambda values: values[:0], "size mismatch"),
    "too few back-off weights": ("orders.1.backoff", lambda values: values[:1], "shape"),
    "too few back-off weights of words": ("orders.0.backoff", lambda values: values[:1], "shape"),
    "a log-probability that is not a number": ("orders.1.log_prob", lambda v: changed(v, 0, torch.nan), "not finite"),
    "an infinite back-off weight": ("orders.0.backoff", lambda v: changed(v, 0, torch.inf), "not finite"),
}


def changed(values: Tensor, place: int, value: float) -> Tensor:
    values = values.clone()
    values[place] = value
    return values


def hostile(case: str) -> dict[str, Tensor]:
    """The weights of a model with one array changed."""
    name, change, _ = HOSTILE[case]
    weights = MODEL.state_dict()
    return {**weights, name: change(weights[name])}


@pytest.mark.parametrize("case", HOSTILE)
def test_invalid_tables_are_not_loaded(case: str) -> None:
    with pytest.raises(CheckpointError, match=rf"^run: the weights do not fit .*{HOSTILE[case][2]}[^\n]*$"):
        Checkpoint(1, hostile(case)).load_into(NGram(MODEL.config, VOCABULARY), "run")


@pytest.mark.parametrize("case", HOSTILE)
def test_invalid_tables_are_not_compiled(case: str) -> None:
    """Whoever put them there."""
    name, change, _ = HOSTILE[case]
    model = NGram(MODEL.config, VOCABULARY)
    model.load_state_dict(MODEL.state_dict())
    owner, _, buffer = name.rpartition(".")
    setattr(model.get_submodule(owner), buffer, change(model.get_buffer(name)).to(model.get_buffer(name).dtype))
    with pytest.raises(ValueError, match=r"table of [123]-grams is invalid"):
        compile_step(model)


def test_valid_tables_are_loaded() -> None:
    for order in (1, 2, 4):
        model = fitted(regular(), order=order)
        again = NGram(model.config, VOCABULARY)
        again.load_state_dict(model.state_dict())
        assert all(torch.equal(a, b) for a, b in zip(model.buffers(), again.buffers(), strict=True))
        again.load_state_dict(NGram(model.config, VOCABULARY).state_dict())  # not fitted


def test_tables_in_double_precision_are_not_compiled() -> None:
    """Catches: pairs of halves of numbers were read as numbers."""
    with pytest.raises(CannotCompile, match="float32 only"):
        compile_step(fitted(regular(), order=2).double())


def test_tokens_outside_of_the_vocabulary_are_unknown_to_compiled_code() -> None:
    """Catches: their back-off weight was read behind the table."""
    runner = Runner(compile_step(MODEL), [MODEL.initial_state(1)])
    expected, _ = MODEL.step(torch.tensor([0]), MODEL.initial_state(1))
    for token in (VOCABULARY, 2**62, -(2**62)):
        runner.step(torch.tensor([token]))
        assert torch.isfinite(runner.step(torch.tensor([0]))).all()
        torch.testing.assert_close(runner.output, expected)
    with pytest.raises(ValueError, match=f"not among the {VOCABULARY} tokens"):
        runner.follow(torch.tensor([0]), torch.tensor([VOCABULARY]))


def test_other_tables_need_another_program() -> None:
    program = compile_step(MODEL)
    other = fitted(regular(60), order=3)
    with pytest.raises(ValueError, match="compiled for a weight of shape"):
        program.renew([*other.parameters(), *other.buffers()])


@pytest.mark.parametrize("number", ["nan", "inf"])
def test_an_arpa_file_without_numbers_is_rejected(tmp_path, number: str) -> None:
    file = tmp_path / "a.arpa"
    file.write_text(f"\\data\\\nngram 1=2\n\n\\1-grams:\n{number}\ta\n-1\tb\n\n\\end\\\n")
    with pytest.raises(DataError, match=r"a\.arpa, line 5: .* has a probability above 1 or a back-off"):
        read_arpa(file)
