"""Attempts at tasks: small models learn, what is finished is kept, and one table tells who can do what."""

import json
import math

import pytest
import torch

from elman.corpus.synthetic_tasks import TASKS
from elman.errors import RunError, UnknownName
from elman.models.stack import Stack, StackConfig, count_parameters
from elman.pipeline import synthetic_tasks
from elman.pipeline.families import fitted
from elman.pipeline.synthetic_tasks import FAMILIES, SIZES, carry_out, plan, read_records, summary, verdict
from elman.training.config import TrainingConfig
from elman.training.synthetic_tasks import TaskModel, train_on_task

CPU = torch.device("cpu")
TINY = TrainingConfig(batch_size=4, max_steps=2, evaluate_every=1, optimizer="adam")


def make(name, **settings):
    return TASKS[name](TASKS[name].Config.make(settings))


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setitem(SIZES, "quick", synthetic_tasks.records.Size(500, TINY))
    return plan(["parity", "adding"], ["rnn", "attention"], "quick", 2)


@pytest.mark.slow
def test_an_rnn_learns_parity_and_holds_it_at_lengths_it_never_saw():
    """Catches targets of other rows, and without the update."""
    heard = []
    training = TrainingConfig(
        batch_size=32, max_steps=600, learning_rate=5e-3, evaluate_every=50, optimizer="adam", warmup_steps=20
    )
    _, outcome = train_on_task(
        make("parity", train_length=16, test_length=100),
        fitted("rnn", 4000),
        training,
        1,
        CPU,
        lambda *at: heard.append(at),
    )
    assert outcome.score > 0.99
    assert outcome.steps_to_solved <= outcome.steps - 100 < 500, "it stops three validations after it has solved it"
    assert [step for step, _ in heard] == list(range(50, outcome.steps + 1, 50))
    assert outcome.valid == heard[-1][1]


@pytest.mark.parametrize("name", list(TASKS))
def test_every_task_can_be_attempted_and_an_attempt_repeats_itself(name):
    task = make(name, **TASKS[name].quick)
    state = torch.get_rng_state()
    first, second = (train_on_task(task, fitted("gru", 500), TINY, 3, CPU)[1] for _ in range(2))
    assert first._replace(seconds=0) == second._replace(seconds=0)
    assert math.isfinite(first.score)
    assert first.steps == 2
    assert torch.equal(torch.get_rng_state(), state), "nobody else's dice are touched"


@pytest.mark.parametrize("family", list(FAMILIES))
def test_families_are_about_equally_large_and_answer_both_kinds_of_input(family):
    config = fitted(family, 100_000)
    assert count_parameters(Stack(config, config.hidden_size)) == pytest.approx(100_000, rel=0.2)
    small = fitted(family, 1000)
    for name in ("parity", "adding"):
        task = make(name)
        inputs = torch.from_numpy(task.examples("train", 0, 2).inputs)
        inputs = inputs.float() if task.channels else inputs
        assert TaskModel(task, small)(inputs).shape == (*inputs.shape[:2], max(1, task.answers))


def test_the_convolution_sees_the_whole_row_of_every_task_it_is_said_to_solve():
    reach = 1 + sum(config.dilation * (config.kernel_size - 1) for _, config in fitted("convolution", 1000).layers())
    for name in ("adding", "copy-memory"):
        assert make(name).examples("train", 0, 1).inputs.shape[1] <= reach


def test_claims_speak_of_families_that_exist():
    for name in TASKS:
        assert {part for claim in TASKS[name].claims for part in (claim.family, claim.other)} - {""} <= set(FAMILIES)


@pytest.mark.slow
def test_what_is_finished_is_not_run_again(tiny, tmp_path, monkeypatch):
    """Catches a key without the seed, and without the settings."""
    path = tmp_path / "new" / "results.jsonl"
    some = list(carry_out(tiny[:3], path, CPU))
    ran = []
    monkeypatch.setattr(
        synthetic_tasks.records, "train_on_task", lambda *args: ran.append(args[3]) or train_on_task(*args)
    )
    records = list(carry_out(tiny, path, CPU))
    assert len(ran) == len(tiny) - 3
    assert records[:3] == some
    assert [(one.task, one.family, one.seed) for one in records[:4]] == [
        ("parity", "rnn", 1),
        ("parity", "rnn", 2),
        ("parity", "attention", 1),
        ("parity", "attention", 2),
    ]
    assert len(path.read_text().splitlines()) == len(tiny) == 8
    longer = synthetic_tasks.records.Size(500, TINY.model_copy(update={"max_steps": 3}))
    ran.clear()
    list(carry_out([one._replace(size=longer) for one in tiny[:2]], path, CPU))
    assert len(ran) == 2, "other settings are other attempts"


def test_a_torn_last_line_is_run_again(tiny, tmp_path):
    path = tmp_path / "results.jsonl"
    first, *_ = carry_out(tiny[:2], path, CPU)
    path.write_bytes(path.read_bytes()[:-20])
    assert len(list(carry_out(tiny[:2], path, CPU))) == 2
    assert read_records([path])[0] == first
    assert len(read_records([path])) == 2


def test_a_score_that_is_not_finite_ends_the_attempt_and_is_left_out_of_the_table(tiny, tmp_path):
    wild = TINY.model_copy(update={"max_steps": 50, "learning_rate": 1e30})
    size = synthetic_tasks.records.Size(500, wild)
    one = plan(["adding"], ["attention"], "quick", 1)[0]._replace(size=size)
    [record] = carry_out([one], tmp_path / "results.jsonl", CPU)
    assert record.score is None or not math.isfinite(record.score)
    assert record.steps < 50
    [again] = read_records([tmp_path / "results.jsonl"])
    assert again.score is None
    assert summary([again])["adding"]["scores"] == {}


def record(task="parity", family="lstm", seed=1, score=1.0, settings=None):
    solved = make(task).is_solved(score)
    settings = settings or {"task": {}, "training": {}}
    return synthetic_tasks.Record(
        task=task, family=family, seed=seed, score=score, valid=score, solved=solved, steps=1, steps_to_solved=None,
        seconds=1.0, parameters=1, device="cpu", settings=settings,
    )  # fmt: skip


def test_the_best_seed_counts_and_the_best_family_is_marked():
    records = [record(score=0.5), record(seed=2, score=0.995), record(family="rnn", score=0.7)]
    records += [record("adding", "lstm", score=0.001), record("adding", "lstm", 2, score=0.2)]
    found = summary(records)
    assert found["parity"]["scores"] == {"rnn": 0.7, "lstm": 0.995}
    assert found["parity"]["best"] == ["lstm"]
    assert found["parity"]["seeds_solved"] == {"rnn": "0/1", "lstm": "1/2"}
    assert found["adding"]["scores"] == {"lstm": 0.001}


def test_the_verdict_says_what_held_and_what_did_not():
    both = summary([record(), record(family="attention", score=0.51)])
    assert verdict("parity", both["parity"]) == (
        "parity: lstm 100 % ≥ 99 %, attention 51 % about chance (50 %): reproduced"
    )
    wrong = summary([record(), record(family="attention", score=0.9)])
    assert verdict("parity", wrong["parity"]) == (
        "parity: lstm 100 % ≥ 99 %, NOT attention 90 % about chance (50 %): not reproduced"
    )
    assert "nothing was published" in verdict("parity", summary([record(family="s4d")])["parity"])


def test_scores_of_different_settings_do_not_come_into_one_table():
    with pytest.raises(RunError, match="different settings of the task"):
        summary([record(), record(family="rnn", settings={"task": {"test_length": 90}, "training": {}})])


def test_wrong_names_and_files_are_refused_before_anything_runs(tmp_path):
    with pytest.raises(UnknownName, match="did you mean 'lstm'"):
        plan(["parity"], ["lsm"], "quick", 1)
    with pytest.raises(UnknownName, match="did you mean 'quick'"):
        plan(["parity"], ["lstm"], "quik", 1)
    path = tmp_path / "other.jsonl"
    path.write_text(json.dumps({"loss": 1}) + "\n")
    with pytest.raises(RunError, match="line 1: no result of a task"):
        read_records([path])


def test_a_stack_config_of_a_family_can_be_written_and_read():
    for family in FAMILIES:
        config = fitted(family, 1000)
        assert StackConfig.make(config.plain()) == config
