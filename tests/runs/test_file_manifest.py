"""The manifest of a folder: changed files are named, whatever moment a writer was killed at."""

import json

import pytest

from elman import files
from elman.errors import RunError
from elman.runs import FileManifest


class Killed(BaseException):
    pass


@pytest.fixture
def folder(tmp_path):
    manifest = FileManifest(tmp_path)
    for name in ("config.yaml", "tokenizer.json"):
        manifest.write(name, name.encode() * 9)
    return tmp_path


def test_a_changed_byte_is_refused_by_name(folder):
    manifest, path = FileManifest(folder), folder / "tokenizer.json"
    manifest.check()
    path.write_bytes(b"T" + path.read_bytes()[1:])
    with pytest.raises(RunError, match=r"tokenizer\.json: changed since it was written; .*elman accept "):
        manifest.check()
    assert manifest.accept() == ["tokenizer.json"]
    manifest.check()
    assert manifest.accept() == []


@pytest.mark.parametrize("damage", [b"", b"{}", b"[]", b"\x00", b'{"files": 3}', "cut", "digit"])
def test_a_damaged_manifest_is_refused_and_can_be_written_anew(folder, damage):
    path = folder / "manifest.json"
    text = path.read_bytes()
    place = text.index(b'"sha256"') + 14
    digit = b"1" if text[place : place + 1] == b"0" else b"0"
    changed = {"cut": text[:-3], "digit": text[:place] + digit + text[place + 1 :]}
    path.write_bytes(damage if isinstance(damage, bytes) else changed[damage])
    with pytest.raises(RunError, match="elman accept"):
        FileManifest(folder).check()
    FileManifest(folder).accept()
    FileManifest(folder).check()


def test_a_folder_without_a_manifest_is_not_checked(folder):
    (folder / "manifest.json").unlink()
    (folder / "config.yaml").write_text("other")
    FileManifest(folder).check()


@pytest.mark.parametrize("name", ["config.yaml", "results.json"])
def test_a_kill_at_any_operation_leaves_a_valid_folder(folder, monkeypatch, name):
    """A file replaced and a new one. Catches a hash written after its file, or one that is lost in between."""
    text = (folder / "manifest.json").read_bytes()
    for last in range(100):
        count = 0

        def kill(*operation, last=last):
            nonlocal count
            count += 1
            if count > last:
                raise Killed

        (folder / "config.yaml").write_bytes(b"config.yaml" * 9)
        (folder / "results.json").unlink(missing_ok=True)
        (folder / "manifest.json").write_bytes(text)
        with monkeypatch.context() as patch:
            patch.setattr(files, "hook", kill)
            try:
                FileManifest(folder).write(name, b"new")
            except Killed:
                FileManifest(folder).check()
            else:
                break
        FileManifest(folder).write(name, b"new")
        FileManifest(folder).check()
        assert json.loads((folder / "manifest.json").read_text())["files"].keys() >= {"config.yaml", name}
    assert (folder / name).read_bytes() == b"new"
    (folder / name).write_bytes(b"config.yaml" * 9 if name == "config.yaml" else b"old")
    with pytest.raises(RunError, match=name):  # the replaced content is valid no more
        FileManifest(folder).check()


def test_a_file_learned_again_must_be_the_same(folder):
    manifest = FileManifest(folder)
    assert manifest.record("tokenizer.json")
    (folder / "tokenizer.json").write_text("of other data")
    assert not manifest.record("tokenizer.json")
