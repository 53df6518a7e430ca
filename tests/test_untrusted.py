import os

import pytest

from elman.errors import ConfigError, DataError, RunError
from elman.limits import Limits, limits
from elman.untrusted import read_bytes, read_json, read_yaml


def test_a_regular_file_is_read(tmp_path):
    (tmp_path / "a.json").write_text('{"a": [1]}')
    assert read_json(tmp_path / "a.json") == {"a": [1]}


def test_larger_files_links_pipes_devices_and_folders_are_rejected(tmp_path):
    (tmp_path / "large").write_bytes(bytes(11))
    (tmp_path / "link").symlink_to(tmp_path / "large")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "to_device").symlink_to("/dev/zero")
    for name, reason in {
        "large": "11 bytes, but at most 10",
        "link": "symbolic link",
        "pipe": "not a regular file",
        "missing": "No such file",
        ".": "not a regular file",
    }.items():
        with pytest.raises(DataError, match=reason):
            read_bytes(tmp_path / name, 10, DataError)
    with pytest.raises(RunError, match="not a regular file"):
        read_bytes(tmp_path / "to_device", 10, follow_links=True)
    assert read_bytes(tmp_path / "link", 11, follow_links=True) == bytes(11)


@pytest.mark.parametrize("text", [b"", b"{", b"\xff", b"[" * 100_000, b"1" * 5_000], ids=len)
def test_what_is_not_json_is_one_sentence(tmp_path, text):
    (tmp_path / "a.json").write_bytes(text)
    with pytest.raises(RunError, match=r"a\.json: not valid JSON: [^\n]*$"):
        read_json(tmp_path / "a.json")


def test_limits_are_set_in_the_environment(monkeypatch):
    assert limits() == Limits()
    monkeypatch.setenv("ELMAN_LIMITS", "yaml_bytes=2e3")
    assert limits().yaml_bytes == 2000
    for wrong, reason in {
        "yaml_bytes": "not a limit",
        "yaml=1": "unknown key",
        "yaml_bytes=0": "greater than 0",
    }.items():
        monkeypatch.setenv("ELMAN_LIMITS", wrong)
        with pytest.raises(ConfigError, match=reason):
            limits()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"a: &a [x, *a]", "r.yaml: line 1: .*stands for nothing"),
        (b"\xff\xfe\xff", "cannot be read as a recipe"),
        (b"x" * 2_000_000, "at most 1000000 are read"),
        (b"- 1", "a recipe consists of `key: value` lines, not list"),
    ],
    ids=["cycle", "bytes", "large", "list"],
)
def test_a_recipe_that_is_none_is_one_sentence_with_its_path(tmp_path, content, reason):
    (tmp_path / "r.yaml").write_bytes(content)
    with pytest.raises(ConfigError, match=reason) as told:
        read_yaml(tmp_path / "r.yaml")
    assert str(told.value).count("r.yaml") == 1
    assert "\n" not in str(told.value)
