"""The cache of compiled code runs only what this user compiled, undamaged."""

import importlib.util
import os
import py_compile
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from elman.compiler.cpu import build
from elman.compiler.errors import NoCompiler
from elman.compiler.triton.launcher import load_module
from elman.ops import cache

SOURCE = 'extern "C" int answer() { return 42; }'
HOSTILE = 'extern "C" int answer() { return 13; }'


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The library of SOURCE, and a stranger's."""
    folder = tmp_path_factory.mktemp("libraries")
    for name, text in {"own": SOURCE, "hostile": HOSTILE}.items():
        (folder / f"{name}.cpp").write_text(text)
        subprocess.run(["c++", "-shared", "-fPIC", folder / f"{name}.cpp", "-o", folder / f"{name}.so"], check=True)
    return folder / "own.so", folder / "hostile.so"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, libraries: tuple[Path, Path]) -> Path:
    """The folder of the cache; the compiler is one that has its result ready."""
    (tmp_path / "compiler").write_text(f'for last; do :; done\ncp {libraries[0]} "$last"\n')
    monkeypatch.setenv("CXX", f"sh {tmp_path / 'compiler'}")
    monkeypatch.setattr(build, "compiler", lambda: "one that copies")
    monkeypatch.setenv("ELMAN_CACHE", str(tmp_path))
    return tmp_path / "native"


def answer() -> int:
    return build.library(SOURCE, "scalar_math.h").answer()


def only(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


def test_the_folder_is_for_this_user_alone(folder: Path) -> None:
    folder.mkdir(0o777)
    folder.chmod(0o777)
    assert answer() == 42
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("damage", ["truncated", "zeros", "replaced", "a link", "a folder"])
def test_a_damaged_library_is_built_again(folder: Path, damage: str, libraries: tuple[Path, Path]) -> None:
    assert answer() == 42
    path, other = only(folder), libraries[1]
    data = path.read_bytes()
    path.unlink()  # it is mapped into this process
    match damage:
        case "truncated":
            path.write_bytes(data[:1000])
        case "zeros":
            path.write_bytes(bytes(len(data)))
        case "replaced":
            path.write_bytes(other.read_bytes())
        case "a link":
            path.symlink_to(other)
        case _:
            path.mkdir()
    assert answer() == 42
    assert path.read_bytes() == data
    assert not path.is_symlink()
    assert list(folder.iterdir()) == [path]


def test_a_library_that_was_not_built_here_has_another_name(folder: Path, libraries: tuple[Path, Path]) -> None:
    """Catches: whatever had the name of the source's hash was run."""
    assert answer() == 42
    path = only(folder)
    path.unlink()
    shutil.copy(libraries[1], folder / f"{path.name.partition('-')[0]}.so")
    assert answer() == 42


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="files have no owners here")
def test_files_of_other_users_are_not_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert answer() == 42
    own = os.geteuid()
    monkeypatch.setattr(cache.os, "geteuid", lambda: own + 1)
    with pytest.raises(NoCompiler, match=r"native.* belongs to another user; set ELMAN_CACHE to a folder of your own"):
        answer()
    with pytest.raises(PermissionError, match="another user"):
        load_module("kernel = 1")
    monkeypatch.setattr(cache.os, "geteuid", lambda: own)
    path = only(folder)
    monkeypatch.setattr(build, "is_own", lambda path: False)
    before = path.stat().st_ino
    assert answer() == 42
    assert path.stat().st_ino != before


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="folders cannot be linked everywhere")
def test_a_linked_folder_is_not_used(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NoCompiler, match="another user"):
        answer()


def test_a_library_that_cannot_be_loaded_is_an_error_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "compiler").write_text('for last; do :; done\necho nothing > "$last"\n')
    with pytest.raises(NoCompiler, match=r"not loaded from there: .*too short"):
        answer()


def test_generated_kernels_are_run_from_their_source(tmp_path: Path) -> None:
    """Catches: bytecode beside it was run, of any source of the same size and time."""
    source, hostile = "kernel = 42", "kernel = 13"
    assert load_module(source).kernel == 42
    (path,) = (tmp_path / "kernels").glob("*.py")
    sys.modules.pop(path.stem)
    path.write_text(hostile)
    bytecode = Path(importlib.util.cache_from_source(str(path)))

    py_compile.compile(str(path), str(bytecode))
    status = path.stat()
    path.write_text(source)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert load_module(source).kernel == 42
    sys.modules.pop(path.stem)
