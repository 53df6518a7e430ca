"""Simulated power cuts lose any subset of unsynced operations: every possible disk state loads.

The operations of a save are replayed on a model of a disk. A file's bytes are safe after its sync; a change to a folder
(a name made, renamed, removed) is safe after the folder's sync, and until then may have happened or not, in any
combination with the others.
"""

import os
import warnings
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
from crashing import hooked, load_quietly, make, same

from elman import files
from elman.runs.checkpoint import CheckpointFolder


class File:
    def __init__(self, safe: bytes | None = None):
        self.safe = safe


class Folder:
    def __init__(self) -> None:
        self.live: dict[str, File | Folder] = {}
        self.safe: dict[str, File | Folder] = {}


class Disk:
    """Durable and unsynced contents of a folder whose operations are passed to `replay`."""

    def __init__(self, root: Path):
        self.root, self.top = root, Folder()
        self.doubts: list[tuple[Folder, dict[str, File | Folder | None]]] = []
        for path in sorted(root.rglob("*")):
            holder = self.find(path.parent)
            assert isinstance(holder, Folder)
            holder.live[path.name] = holder.safe[path.name] = Folder() if path.is_dir() else File(path.read_bytes())

    def find(self, path: Path) -> File | Folder:
        node: File | Folder = self.top
        for name in path.relative_to(self.root).parts:
            assert isinstance(node, Folder)
            node = node.live[name]
        return node

    def change(self, path: Path, changes: dict[str, File | Folder | None]) -> None:
        holder = self.find(path.parent)
        assert isinstance(holder, Folder)
        apply(holder.live, changes)
        self.doubts.append((holder, changes))

    def replay(self, operation: str, paths: tuple[Path, ...], data: bytes) -> None:
        path = paths[0]
        if operation == "create":
            self.change(path, {path.name: File()})
        elif operation == "make":
            self.change(path, {path.name: Folder()})
        elif operation == "rename":
            assert paths[0].parent == paths[1].parent
            self.change(path, {path.name: None, paths[1].name: self.find(path)})
        elif operation == "remove":
            self.change(path, {path.name: None})
        elif operation == "sync":
            node = self.find(path)
            if isinstance(node, File):
                node.safe = data
            else:
                for holder, changes in self.doubts:
                    if holder is node:
                        apply(node.safe, changes)
                self.doubts = [doubt for doubt in self.doubts if doubt[0] is not node]
        else:
            assert operation in ("write", "list", "measure the free space of"), operation

    def after_a_cut(self) -> Iterator[dict[str, bytes | None]]:
        """Every possible disk state: path -> bytes, or None for a folder."""
        for happened in product([False, True], repeat=len(self.doubts)):
            for unsynced in (b"", b"\0" * 700):
                yield dict(self.seen(self.top, "", happened, unsynced))

    def seen(
        self, folder: Folder, prefix: str, happened: tuple[bool, ...], unsynced: bytes
    ) -> Iterator[tuple[str, bytes | None]]:
        names = dict(folder.safe)
        for (holder, changes), real in zip(self.doubts, happened, strict=True):
            if real and holder is folder:
                apply(names, changes)
        for name, node in names.items():
            if isinstance(node, Folder):
                yield prefix + name, None
                yield from self.seen(node, f"{prefix}{name}/", happened, unsynced)
            else:
                yield prefix + name, unsynced if node.safe is None else node.safe


def apply(names: dict[str, File | Folder], changes: dict[str, File | Folder | None]) -> None:
    for name, node in changes.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


def log_of(action, root: Path) -> tuple[Disk, list[tuple[str, tuple[Path, ...], bytes]]]:
    """The disk before the action, and the operations it took."""
    disk, log = Disk(root), []

    def hook(operation: str, *paths: Path) -> None:
        log.append((operation, paths, paths[0].read_bytes() if operation == "sync" and paths[0].is_file() else b""))

    with hooked(hook):
        action()
    return disk, log


def reachable(disk: Disk, log: list[tuple[str, tuple[Path, ...], bytes]]) -> list[dict[str, bytes | None]]:
    found = {}
    for operation in [None, *log]:
        if operation:
            disk.replay(*operation)
        for state in disk.after_a_cut():
            found[tuple(sorted(state.items()))] = state
    return list(found.values())


def lay_out(state: dict[str, bytes | None], folder: Path) -> None:
    folder.mkdir()
    for name, data in sorted(state.items()):
        (folder / name).mkdir() if data is None else (folder / name).write_bytes(data)


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.mark.slow
@pytest.mark.parametrize("keep", [1, 2])
@pytest.mark.parametrize(
    ("before", "new"), [([], (1, 0)), ([(1, 0)], (2, 0)), ([(1, 0), (2, 0)], (2, 1)), ([(1, 0), (9, 0)], (5, 0))]
)
def test_power_cut_leaves_the_old_or_new_checkpoint(tmp_path, keep, before, new):
    root = tmp_path / "shelf"
    root.mkdir()
    shelf = CheckpointFolder(root, keep)
    for which in before:
        shelf.save(make(*which))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", files.RunWarning)
        disk, log = log_of(lambda: shelf.save(make(*new)), root)
    states = reachable(disk, log)
    assert len(states) > 15
    new_ones = 0
    for number, state in enumerate(states):
        lay_out(state, tmp_path / str(number))
        found = load_quietly(CheckpointFolder(tmp_path / str(number)))
        is_new = found is not None and same(found, make(*new))
        new_ones += is_new
        assert is_new or (same(found, make(*before[-1])) if before and found else not before and not found)
    assert 0 < new_ones < len(states)
    for number, state in enumerate(disk.after_a_cut()):  # the save has returned: only the new one will do
        lay_out(state, tmp_path / f"after-{number}")
        assert same(load_quietly(CheckpointFolder(tmp_path / f"after-{number}")), make(*new))


def test_power_cut_leaves_the_old_or_new_file(tmp_path):
    root = tmp_path / "run"
    root.mkdir()
    (root / "config.yaml").write_bytes(b"old")
    disk, log = log_of(lambda: files.atomic_write(root / "config.yaml", b"new"), root)
    found = {state["config.yaml"] for state in reachable(disk, log)}
    assert found == {b"old", b"new"}
    assert {state["config.yaml"] for state in disk.after_a_cut()} == {b"new"}


def test_each_file_is_synced_before_the_rename_and_the_folder_after(tmp_path):
    shelf = CheckpointFolder(tmp_path)
    _, log = log_of(lambda: shelf.save(make(3)), tmp_path)
    told = [(operation, *paths) for operation, paths, _ in log]
    rename = next(index for index, entry in enumerate(told) if entry[0] == "rename")
    beside, target = told[rename][1:]
    assert target == shelf.newest()
    for name in ("weights.safetensors", "training.safetensors", "facts.json", "manifest.json"):
        assert told.index(("write", beside / name)) < told.index(("sync", beside / name)) < rename
    created = [entry[1].name for entry in told if entry[0] == "create"]
    assert created[-1] == "manifest.json"
    assert told.index(("sync", beside / "manifest.json")) < told.index(("sync", beside)) < rename
    assert ("sync", tmp_path) in told[rename:]
