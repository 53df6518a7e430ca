"""Damaged checkpoints are always found: loading falls back to the one before, with a warning."""

import json
import os
import random
import re
import shutil
from hashlib import sha256
from pathlib import Path

import pytest
from crashing import deadline, make, same
from processes import HANG

from elman.errors import CheckpointError
from elman.files import RunWarning
from elman.runs.checkpoint import CheckpointFolder
from elman.runs.manifest import read_verified

NAMES = ["weights.safetensors", "training.safetensors", "facts.json", "manifest.json"]
files_of_a_checkpoint = pytest.mark.parametrize("name", NAMES)


@pytest.fixture
def shelf(tmp_path):
    shelf = CheckpointFolder(tmp_path / "last")
    shelf.save(make(1))
    shelf.save(make(2))
    return shelf


@pytest.fixture(autouse=True)
def no_hanging():
    with deadline(HANG):
        yield


def falls_back(shelf: CheckpointFolder, reason: str = "") -> None:
    """For the full and the short load alike: the same checkpoint is chosen."""
    with pytest.warns(RunWarning, match=rf"using .*step-00000001, because newer ones are damaged: .*{reason}"):
        assert same(shelf.load(), make(1))
    with pytest.warns(RunWarning):
        assert shelf.load(training=False).step == 1


@pytest.mark.slow
@files_of_a_checkpoint
def test_every_bit_flip_is_found(shelf, name):
    path = shelf.newest() / name
    data, generator = path.read_bytes(), random.Random(name)
    for place in generator.sample(range(8 * len(data)), 150):
        flipped = bytearray(data)
        flipped[place // 8] ^= 1 << place % 8
        path.write_bytes(flipped)
        falls_back(shelf, re.escape(str(path)))
    path.write_bytes(data)
    assert same(shelf.load(), make(2))


@pytest.mark.slow
def test_every_bit_flip_in_the_manifest_is_found(shelf):
    path = shelf.newest() / "manifest.json"
    data = path.read_bytes()
    for place in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[place // 8] ^= 1 << place % 8
        path.write_bytes(flipped)
        with pytest.raises(CheckpointError) as raised:
            read_verified(path.parent, 2, NAMES)
        assert raised.type is CheckpointError  # not taken for one of a later version, which would stop the search


@files_of_a_checkpoint
def test_every_truncation_is_found(shelf, name):
    path = shelf.newest() / name
    data = path.read_bytes()
    for length in {0, 1, 7, 8, *range(0, len(data), 97), len(data) - 1}:
        path.write_bytes(data[:length])
        falls_back(shelf)
    path.write_bytes(data + b"\n")
    falls_back(shelf)


@files_of_a_checkpoint
def test_a_file_filled_with_zeros_is_found(shelf, name):
    path = shelf.newest() / name
    path.write_bytes(b"\0" * path.stat().st_size)
    falls_back(shelf)


@files_of_a_checkpoint
def test_a_missing_file_is_found(shelf, name):
    (shelf.newest() / name).unlink()
    falls_back(shelf, "No such file")


@files_of_a_checkpoint
def test_a_file_from_another_step_is_found(shelf, name):
    shutil.copy(shelf.folder / "step-00000001" / name, shelf.newest() / name)
    falls_back(shelf)


def test_a_renamed_checkpoint_is_found(shelf):
    shelf.newest().rename(shelf.folder / "step-00000003")
    falls_back(shelf, "contains step 2")


def test_error_lists_the_damage_of_every_checkpoint(shelf):
    for folder in shelf.folder.iterdir():
        (folder / "facts.json").unlink()
    for look in (shelf.load, shelf.newest):
        with pytest.raises(
            CheckpointError, match=r"no checkpoint is valid: .*step-00000002/facts.*step-00000001/facts"
        ):
            look()


@files_of_a_checkpoint
@pytest.mark.parametrize("kind", ["pipe", "link", "folder", "device"])
def test_only_regular_files_are_read(shelf, name, kind):
    path = shelf.newest() / name
    other = shelf.folder / "elsewhere"
    path.rename(other)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to(other)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")
    falls_back(shelf, "not a regular file")


@pytest.mark.parametrize("kind", ["pipe", "link", "file"])
def test_checkpoint_that_is_not_a_folder_is_rejected(shelf, kind):
    path = shelf.newest()
    path.rename(shelf.folder / "elsewhere")
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to(shelf.folder / "elsewhere")
    else:
        path.write_text("")
    falls_back(shelf, "not a folder")
    shelf.save(make(3))  # and the impostor is cleared away without touching what it points to
    shelf.save(make(4))
    assert (shelf.folder / "elsewhere" / "facts.json").exists()


def forge(folder: Path, **changes: object) -> None:
    """A forged manifest with a correct hash."""
    path = folder / "manifest.json"
    body = json.loads(path.read_text()) | changes
    body.pop("sha256")
    own = sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    path.write_text(json.dumps(body | {"sha256": own}, indent=1, sort_keys=True) + "\n")


@pytest.mark.parametrize(
    "name",
    ["../step-00000001/facts.json", "/etc/passwd", "sub/file", "..", ".", "", "extra.bin", "a\0b", "MANIFEST.json"],
)
def test_a_manifest_can_only_name_the_files_of_a_checkpoint(shelf, name):
    files = json.loads((shelf.newest() / "manifest.json").read_text())["files"]
    forge(shelf.newest(), files=files | {name: {"bytes": 0, "sha256": sha256(b"").hexdigest()}})
    falls_back(shelf, "which is none of")


@pytest.mark.parametrize("files", [None, [], 3, {}, {"facts.json": None}, {"facts.json": []}, {"facts.json": {}}])
def test_a_manifest_without_proper_entries_is_rejected(shelf, files):
    forge(shelf.newest(), files=files)
    falls_back(shelf)


@pytest.mark.parametrize("entry", [{"bytes": "9"}, {"bytes": -1}, {"bytes": 1e300}, {"sha256": None}, {"sha256": 7}])
def test_a_manifest_with_wrong_entries_is_rejected(shelf, entry):
    files = json.loads((shelf.newest() / "manifest.json").read_text())["files"]
    forge(shelf.newest(), files=files | {"facts.json": files["facts.json"] | entry})
    falls_back(shelf)


@pytest.mark.parametrize("text", [b"[" * 60_000, b"{}", b"[]", b"null", b"\xff\xfe", b"1" * 5000, b'"a"'])
def test_malformed_manifest_is_rejected(shelf, text):
    (shelf.newest() / "manifest.json").write_bytes(text)
    falls_back(shelf, "manifest.json: incomplete or modified")


def test_huge_manifest_is_not_read(shelf):
    os.truncate(shelf.newest() / "manifest.json", 2**24)
    falls_back(shelf, "too large for a manifest")


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("facts.json", b"[1]"),
        ("facts.json", b"{"),
        ("facts.json", b"[" * 100_000),
        ("weights.safetensors", b""),
        ("weights.safetensors", b"\xff" * 100),
        ("training.safetensors", (100).to_bytes(8, "little") + b"{}" + b" " * 98 + b"hole"),
        ("training.safetensors", (2**40).to_bytes(8, "little") + b"{}"),
    ],
)
def test_contents_that_do_not_parse_are_rejected_even_with_the_right_hash(shelf, name, data):
    folder = shelf.newest()
    files = json.loads((folder / "manifest.json").read_text())["files"]
    (folder / name).write_bytes(data)
    forge(folder, files=files | {name: {"bytes": len(data), "sha256": sha256(data).hexdigest()}})
    falls_back(shelf, "(facts.json: not a JSON object|cannot be parsed)")


def test_a_checkpoint_of_a_later_version_is_rejected_not_skipped(shelf):
    forge(shelf.newest(), schema=2)
    with pytest.raises(CheckpointError, match=r"schema 2, but this version reads 1: pip install --upgrade elman"):
        shelf.load()


@pytest.mark.parametrize("schema", [0, -1, None, "1", 1.5])
def test_an_unknown_version_is_rejected(shelf, schema):
    forge(shelf.newest(), schema=schema)
    falls_back(shelf, "unknown schema")


def test_other_files_in_the_checkpoint_folder_are_kept(shelf):
    for name in ("notes.txt", "step-1", "step-0000000x", "step-00000009.tmp", ".aside-x-step-00000009"):
        (shelf.folder / name).mkdir()
    assert same(shelf.load(), make(2))
    shelf.save(make(3))
    shelf.save(make(4))
    assert len(list(shelf.folder.iterdir())) == 7
