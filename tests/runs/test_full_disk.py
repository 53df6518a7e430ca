"""Full, read-only or broken disks: a clear error, an intact previous checkpoint, no leftovers."""

import errno
import os
import resource
import shutil
from collections import namedtuple

import pytest
from crashing import hooked, in_child, leftovers, make, same

from elman import files
from elman.errors import CheckpointError, RunError
from elman.runs.checkpoint import CheckpointFolder
from elman.runs.run import Run

SIZE = 4000  # rows: files of 64 kB


@pytest.fixture
def shelf(tmp_path):
    shelf = CheckpointFolder(tmp_path / "last", keep=1)
    shelf.save(make(1, size=SIZE))
    return shelf


@pytest.mark.parametrize("limit", [0, 1, 512, 4096, 20_000, 60_000, 64_000])
def test_file_size_limit_error_has_needed_and_free_bytes(shelf, limit):
    def save() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        with pytest.raises(
            CheckpointError, match=r"was not saved: .*\.safetensors: .*\d+ bytes needed, \d+ bytes free"
        ):
            shelf.save(make(2, size=SIZE))

    assert in_child(save) == 0
    assert not leftovers(shelf.folder)
    assert same(shelf.load(), make(1, size=SIZE))
    shelf.save(make(2, size=SIZE))


@pytest.mark.parametrize("operation", ["create", "write", "sync", "make", "rename"])
@pytest.mark.parametrize("kind", ["ENOSPC", "EDQUOT", "EFBIG", "EACCES", "EROFS", "EIO"])
def test_any_os_error_is_a_failed_save(shelf, operation, kind):
    code = getattr(errno, kind)

    def hook(name, *paths):
        if name == operation:
            raise OSError(code, os.strerror(code), str(paths[0]))

    with hooked(hook), pytest.raises(CheckpointError, match="step 2 was not saved") as raised:
        shelf.save(make(2, size=SIZE))
    message = str(raised.value)
    assert f"cannot {operation}: {os.strerror(code)}" in message
    assert ("bytes free" in message) == (code in files.FULL)
    assert isinstance(raised.value.__cause__, RunError)
    if operation != "sync":  # the last sync fails when the new one is already in place, which is as good
        assert same(shelf.load(), make(1, size=SIZE))
    shelf.save(make(3, size=SIZE))
    assert same(shelf.load(), make(3, size=SIZE))


def test_short_writes_are_continued(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "CHUNK", 7)
    files.write_file(tmp_path / "file", bytes(range(100)))
    assert (tmp_path / "file").read_bytes() == bytes(range(100))


def test_too_little_space_is_found_before_anything_is_written(shelf, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage(10**9, 10**9 - 5000, 5000))
    operations = []
    with (
        hooked(lambda name, *paths: operations.append(name)),
        pytest.raises(CheckpointError, match=r"disk full \(\d{6} bytes needed, 5000 bytes free\)"),
    ):
        shelf.save(make(2, size=SIZE))
    assert not {"create", "write", "make", "remove"} & set(operations)
    monkeypatch.undo()
    assert same(shelf.load(), make(1, size=SIZE))


def test_a_read_only_folder_is_a_clear_error(shelf):
    shelf.folder.chmod(0o500)
    try:
        if os.access(shelf.folder, os.W_OK):
            pytest.skip("this user may write anywhere")
        with pytest.raises(CheckpointError, match="cannot make: Permission denied"):
            shelf.save(make(2))
        assert same(shelf.load(), make(1, size=SIZE))
    finally:
        shelf.folder.chmod(0o700)


def test_a_file_in_the_place_of_a_folder_is_a_clear_error(tmp_path):
    (tmp_path / "last").write_text("")
    with pytest.raises(CheckpointError, match="last: cannot make: File exists"):
        CheckpointFolder(tmp_path / "last").save(make(1))
    with pytest.raises(RunError, match="cannot make"):
        Run.create(tmp_path / "last", "", {})
