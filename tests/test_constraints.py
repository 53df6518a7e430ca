"""constraints.txt pins every package that the tests install, those that other packages require included."""

from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

LOCK = Path(__file__).parent.parent / "constraints.txt"


def required(package: str, extras: tuple[str, ...], found: set[tuple[str, tuple[str, ...]]]) -> set[str]:
    """All packages that are installed because of `package[extras]`."""
    found.add((package, extras))
    for text in requires(package) or ():
        one = Requirement(text)
        name, its_extras = canonicalize_name(one.name), tuple(sorted(one.extras))
        marked = one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in ("", *extras))
        if marked and (name, its_extras) not in found and is_installed(name):
            required(name, its_extras, found)
    return {name for name, _ in found}


def is_installed(name: str) -> bool:
    try:
        return bool(version(name))
    except PackageNotFoundError:
        return False


def test_every_package_that_the_tests_install_is_pinned():
    """Renewed by `make lock`; catches a new dependency, of ours or of a package that we require."""
    pinned = {canonicalize_name(line.partition("==")[0]) for line in LOCK.read_text().splitlines() if "==" in line}
    needed = required("elman", ("dev",), set()) - {"elman"}
    assert {"torch", "sympy", "pytest", "pluggy"} <= needed
    assert needed <= pinned, f"not in constraints.txt: {sorted(needed - pinned)}"
