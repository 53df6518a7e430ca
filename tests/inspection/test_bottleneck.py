"""The bottleneck: curriculum, accuracy by definition, output files, and attention ahead of the fixed vector."""

import json
from pathlib import Path

import pytest
import torch

from elman.cli.main import main
from elman.errors import UnknownName
from elman.generation import BeamConfig, beam_search
from elman.inspection import bottleneck
from elman.inspection.bottleneck import (
    EOS,
    NUMBERS,
    Architecture,
    curriculum_batches,
    evaluate,
    reversal_batch,
    run_bottleneck,
    sources,
)
from elman.training import Trainer

TINY = bottleneck.Size(
    (Architecture("one vector", 8, False), Architecture("attention", 8, True, True)),
    bottleneck._training(4, 1e-3, 4),
    9,
    3,
)


def test_the_curriculum_goes_from_short_to_long_and_covers_every_length() -> None:
    """Catches a limit that never moves, and with the same seed at every step."""
    batches = curriculum_batches(steps=300, rows=2, longest=20, seed=1)
    sizes = [int(batch.ragged("source").lengths[0]) - 1 for batch in batches.epoch(0)]
    assert len(sizes) == batches.length_of(0) == 300
    assert max(sizes[:10]) <= bottleneck.STARTING + 1
    assert {*sizes[150:]} == {*range(5, 21)}
    first, second = next(iter(batches.epoch(0))), next(iter(batches.epoch(0, start=1)))
    again = next(iter(batches.epoch(0, start=1)))
    assert torch.equal(second.ragged("source").values, again.ragged("source").values)
    assert first.ragged("source").values.tolist() != second.ragged("source").values.tolist()


def test_a_batch_has_letters_and_their_reversal_with_end_tokens() -> None:
    pairs = sources(6, 3, seed=1)
    batch = reversal_batch(pairs)
    source, target = batch.ragged("source"), batch.ragged("target")
    assert batch.real == 3 * 7
    assert torch.equal(source.values[:, :6].flip(1), target.values[:, :6])
    assert (source.values[:, 6] == target.values[:, 6]).all()
    assert source.values[0, :6].tolist() == [NUMBERS[letter] for letter in pairs[0].source]


class Scripted(torch.nn.Module):
    """Predicts given tokens."""

    def __init__(self, predicted: torch.Tensor):
        super().__init__()
        self.predicted = predicted
        self.decoder = torch.nn.Module()
        self.decoder.attention = None

    def forward(self, source, target):
        return torch.nn.functional.one_hot(self.predicted, len(NUMBERS) + 1).float()


def test_letter_accuracy_and_exact_match_follow_their_definitions() -> None:
    """Catches the end counted as a letter, and without it in the exact match."""
    pairs = sources(4, 3, seed=2)
    predicted = reversal_batch(pairs).ragged("target").values.clone()
    predicted[1, 4] = 1  # no end
    predicted[2, 0] = EOS  # a wrong letter
    found = evaluate(Scripted(predicted), pairs)  # type: ignore[arg-type]
    assert found.accuracy == pytest.approx(11 / 12)
    assert found.exact == pytest.approx(1 / 3)
    assert found.alignment is None


@pytest.mark.slow
def test_exact_match_under_teacher_forcing_is_that_of_greedy_decoding() -> None:
    """For a partly trained model."""
    model = Architecture("attention", 32, True, True).build(1)
    for _ in Trainer(model, curriculum_batches(120, 32, 8, 1), bottleneck._training(120, 1e-2, 32)):
        pass
    pairs = sources(5, 60, seed=3)
    source = reversal_batch(pairs).ragged("source")
    with torch.no_grad():
        found = beam_search(model.eval(), model.start(source), EOS, BeamConfig(beam_size=1, max_tokens=9))
    wanted = [[NUMBERS[letter] for letter in pair.target] for pair in pairs]
    written = [list(best.tokens) for best, *_ in found.lists(EOS)]
    exact = sum(a == b for a, b in zip(written, wanted, strict=True)) / len(pairs)
    score = evaluate(model, pairs)
    assert score.exact == exact
    assert 0 < exact < 1
    assert score.alignment is not None


@pytest.mark.slow
def test_one_command_writes_table_figures_and_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Catches the results written first, and with files replaced without --force."""
    monkeypatch.setitem(bottleneck.SIZES, "quick", TINY)
    monkeypatch.setenv("COLUMNS", "80")
    folder = tmp_path / "made" / "here"

    def call(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as end:
            main(["inspect", "bottleneck", "--to", str(folder), *words])
        return end.value.code or 0, *capsys.readouterr()

    code, out, err = call("--json", "--seed", "3")
    assert code == 0
    found = json.loads(out)
    assert found == json.loads((folder / "bottleneck.json").read_text())
    assert (found["seed"], found["lengths"]) == (3, [5, 10, 20, 40, 60, 100, 200])
    assert [outcome["name"] for outcome in found["outcomes"]] == ["one vector", "attention"]
    assert [outcome["alignment"] is None for outcome in found["outcomes"]] == [True, False]
    for outcome in found["outcomes"]:
        assert len(outcome["accuracy"]) == len(outcome["exact"]) == 7
        assert all(0 <= share <= 1 for share in outcome["accuracy"] + outcome["exact"])
    made = {path.name for path in folder.iterdir()}
    assert made == {f"{name}.{suffix}" for name in ("bottleneck", "attention") for suffix in ("svg", "png")} | {
        "bottleneck.json"
    }
    assert "attention: step 4 of 4" in err

    before = (folder / "bottleneck.json").read_bytes()
    code, out, err = call()
    assert (code, out, "--force" in err) == (1, "", True)
    assert (folder / "bottleneck.json").read_bytes() == before
    code, out, err = call("--force", "--seed", "4")
    assert code == 0
    assert "letter accuracy" in out
    assert max(map(len, out.splitlines())) <= 80
    assert (folder / "bottleneck.json").read_bytes() != before
    assert call("--size", "ful")[0] == 2
    (tmp_path / "file").write_text("")
    code, out, err = call("--to", str(tmp_path / "file"))
    assert (code, out) == (1, "")
    assert f"{tmp_path / 'file'}: cannot make" in err


def test_a_seed_is_reproducible_and_leaves_the_global_generator_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches weights from the global generator."""
    monkeypatch.setitem(bottleneck.SIZES, "quick", TINY)
    losses = []
    for seed in (1, 1, 2):
        torch.manual_seed(len(losses))
        before = torch.get_rng_state()
        found = run_bottleneck("quick", seed, [5, 7])
        assert torch.equal(torch.get_rng_state(), before)
        losses.append([outcome.loss for outcome in found.outcomes])
    assert losses[0] == losses[1] != losses[2]
    assert found.lengths == (5, 7)


def test_an_unknown_size_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UnknownName, match="did you mean 'full'"):
        run_bottleneck("ful")


@pytest.mark.slow
def test_attention_is_ahead_of_the_fixed_vector() -> None:
    vector, attention = run_bottleneck("quick").outcomes
    assert min(attention.accuracy[:3]) >= 0.9
    assert vector.accuracy[0] > 0.4
    assert vector.accuracy[2] < 0.35
    assert all(a > b + 0.1 for a, b in zip(attention.accuracy, vector.accuracy, strict=True))
    assert attention.alignment is not None
    assert min(attention.alignment[:3]) >= 0.9
