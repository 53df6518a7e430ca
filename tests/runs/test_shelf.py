"""Checkpoint folders: round trips, retention, rejected contents and errors."""

import json
import math

import pytest
import torch
from crashing import leftovers, make, same
from hypothesis import given
from hypothesis import strategies as st

from elman.errors import CheckpointError, RunError
from elman.files import RunWarning
from elman.runs.checkpoint import Checkpoint, CheckpointFolder


def names(shelf: CheckpointFolder) -> list[str]:
    return sorted(path.name for path in shelf.folder.iterdir())


def test_checkpoint_round_trip_is_bit_identical(tmp_path):
    shelf = CheckpointFolder(tmp_path / "runs" / "last")
    path = shelf.save(make(100))
    assert path == shelf.newest() == tmp_path / "runs" / "last" / "step-00000100"
    assert same(shelf.load(), make(100))
    assert not leftovers(tmp_path)


@given(
    tensors=st.dictionaries(
        st.text(max_size=8).filter(lambda name: name != "__metadata__"),
        st.tuples(
            st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool]),
            st.lists(st.integers(0, 3), max_size=3),
        ),
        max_size=4,
    ),
    facts=st.dictionaries(
        st.text(max_size=5),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
            max_leaves=5,
        ),
        max_size=3,
    ),
    step=st.integers(0, 10**12),
)
def test_arbitrary_tensors_and_facts_round_trip(tmp_path_factory, tensors, facts, step):
    values = {name: torch.randint(0, 2, shape).to(dtype) for name, (dtype, shape) in tensors.items()}
    saved = Checkpoint(step, values, values, facts)
    shelf = CheckpointFolder(tmp_path_factory.mktemp("shelf"))
    shelf.save(saved)
    assert same(shelf.load(), saved)


def test_tied_strided_and_trained_tensors_are_stored_as_values(tmp_path):
    table = torch.nn.Parameter(torch.arange(12.0).reshape(3, 4))
    weights = {"in": table, "out": table, "turned": table.T, "part": table[:, 1], "wide": torch.ones(1).expand(5)}
    CheckpointFolder(tmp_path).save(Checkpoint(1, weights))
    loaded = CheckpointFolder(tmp_path).load().weights
    assert all(loaded[name].equal(tensor) and not loaded[name].requires_grad for name, tensor in weights.items())
    loaded["in"].zero_()
    assert loaded["out"].equal(table)


def test_loaded_tensors_do_not_depend_on_the_files(tmp_path):
    shelf = CheckpointFolder(tmp_path)
    file = shelf.save(make(1)) / "weights.safetensors"
    loaded = shelf.load()
    file.write_bytes(b"\0" * file.stat().st_size)
    assert same(loaded, make(1))


def test_training_state_is_optional(tmp_path):
    shelf = CheckpointFolder(tmp_path)
    shelf.save(make(1))
    assert shelf.load(training=False).training == {}
    path = shelf.save(Checkpoint(2, {"bias": torch.zeros(2)}))
    assert not (path / "training.safetensors").exists()
    assert shelf.load().training == {}


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_only_the_newest_are_kept(tmp_path, keep):
    shelf = CheckpointFolder(tmp_path, keep)
    for step in range(1, 6):
        shelf.save(make(step))
    assert names(shelf) == [f"step-{step:08d}" for step in range(6 - keep, 6)]


def test_steps_beyond_eight_digits_still_sort(tmp_path):
    shelf = CheckpointFolder(tmp_path)
    shelf.save(make(99_999_999))
    shelf.save(make(100_000_000))
    assert shelf.load().step == 100_000_000


def test_damaged_checkpoints_do_not_count_as_kept(tmp_path):
    shelf = CheckpointFolder(tmp_path, keep=2)
    shelf.save(make(1))
    damaged = shelf.save(make(2))
    (damaged / "facts.json").unlink()
    shelf.save(make(3))
    assert names(shelf) == ["step-00000001", "step-00000003"]


def test_saving_the_same_again_changes_nothing(tmp_path):
    shelf = CheckpointFolder(tmp_path)
    shelf.save(make(1))
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert shelf.save(make(1)).name == "step-00000001"
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_other_contents_of_the_same_step_get_a_new_name_and_win(tmp_path):
    shelf = CheckpointFolder(tmp_path)
    for seed in range(12):
        shelf.save(make(1, seed))
    assert names(shelf) == ["step-00000001.10", "step-00000001.11"]
    assert same(shelf.load(), make(1, 11))


def test_a_damaged_step_is_saved_anew_beside_it(tmp_path):
    shelf = CheckpointFolder(tmp_path)
    damaged = shelf.save(make(1))
    (damaged / "manifest.json").write_bytes(b"")
    assert shelf.save(make(1)).name == "step-00000001.1"
    assert names(shelf) == ["step-00000001.1"]


def test_saving_an_earlier_step_removes_later_checkpoints(tmp_path):
    shelf = CheckpointFolder(tmp_path)
    for step in (10, 20, 30):
        shelf.save(make(step))
    with pytest.warns(RunWarning, match="step-00000030: removed: the run went back to step-00000025"):
        shelf.save(make(25))
    assert names(shelf) == ["step-00000020", "step-00000025"]
    assert same(shelf.load(), make(25))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e5m2, torch.complex64])
def test_non_finite_weights_are_rejected_by_name(tmp_path, bad, dtype):
    shelf = CheckpointFolder(tmp_path)
    shelf.save(make(1))
    weights = {"fine": torch.ones(3), "layers.0.bias": torch.tensor([1.0, bad]).to(dtype)}
    with pytest.raises(CheckpointError, match=r"step 2 was not saved: weight 'layers\.0\.bias'"):
        shelf.save(Checkpoint(2, weights))
    assert same(shelf.load(), make(1))


@pytest.mark.parametrize("facts", [{"best": math.nan}, {"best": math.inf}, {"a": torch.ones(1)}, {1: 2}, {"a": (1, 2)}])
def test_facts_that_json_cannot_represent_are_rejected(tmp_path, facts):
    with pytest.raises(CheckpointError, match="JSON"):
        CheckpointFolder(tmp_path).save(Checkpoint(1, {}, facts=facts))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("tensor", [torch.eye(2).to_sparse(), torch.zeros(2, dtype=torch.complex128)])
def test_unsupported_tensors_are_rejected(tmp_path, tensor):
    with pytest.raises(CheckpointError, match="not supported by safetensors"):
        CheckpointFolder(tmp_path).save(Checkpoint(1, {}, {"x": tensor}))
    with pytest.raises(CheckpointError, match="cannot be parsed"):
        CheckpointFolder(tmp_path).save(Checkpoint(1, {"__metadata__": torch.ones(1)}))
    assert not list(tmp_path.iterdir())


def test_empty_checkpoint_folder_is_an_error(tmp_path):
    for shelf in (CheckpointFolder(tmp_path), CheckpointFolder(tmp_path / "missing")):
        assert shelf.newest() is None
        with pytest.raises(RunError, match="no checkpoint has been saved here") as raised:
            shelf.load()
        assert not isinstance(raised.value, CheckpointError)


def test_the_files_are_plain_json_and_safetensors(tmp_path):
    path = CheckpointFolder(tmp_path).save(make(7))
    manifest = json.loads((path / "manifest.json").read_text())
    assert manifest["schema"] == 1
    assert manifest["step"] == 7
    assert sorted(manifest["files"]) == ["facts.json", "training.safetensors", "weights.safetensors"]
    assert all(manifest["files"][name]["bytes"] == (path / name).stat().st_size for name in manifest["files"])
    assert json.loads((path / "facts.json").read_text()) == make(7).facts
