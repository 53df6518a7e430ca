"""docs/compiler.md shows what the compiler gives: its code runs, and every line of an excerpt occurs, in order."""

import re
from pathlib import Path
from typing import Any

import pytest

from elman.compiler import triton as back_end

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "compiler.md").read_text()
EXCERPT = re.compile(r"<!-- excerpt of: (\w+) -->\n```\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def printed() -> dict[str, Any]:
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    return names


@pytest.mark.parametrize("number", range(len(EXCERPT.findall(PAGE))))
def test_an_excerpt_is_what_the_compiler_gives(number: int, printed: dict[str, Any]) -> None:
    """Catches a renamed variable, and with two lines exchanged."""
    name, excerpt = EXCERPT.findall(PAGE)[number]
    lines = [re.sub(r"^@one ", "", line.strip()) for line in str(printed[name]).replace("\\n", "\n").splitlines()]
    start = 0
    for line in excerpt.splitlines():
        if line.strip() != "...":
            assert line.strip() in lines[start:], f"{name} has no line {line.strip()!r} after line {start}"
            start = lines.index(line.strip(), start) + 1


def test_the_example_has_one_exchange_per_step(printed: dict[str, Any]) -> None:
    assert [stage.exchange for stage in printed["stages"]] == [True]
    assert printed["part"].weight_bytes(printed["compiled"].step, 2) == 3 * 32 * 512 * 2


def test_the_page_names_every_file_of_the_back_ends() -> None:
    gpu, cpu = PAGE.split("## The CPU back end")
    files = {path.name for path in Path(next(iter(back_end.__path__))).glob("*.py")} - {"__init__.py"}
    assert files == set(re.findall(r"^\| `(\w+\.py)` \|", gpu, re.MULTILINE))
    cpp = ROOT / "elman" / "compiler" / "cpu"
    files = {path.name for path in cpp.rglob("*") if path.suffix in (".py", ".h")} - {"__init__.py"}
    assert files <= set(re.findall(r"`([\w.]+)`", cpu))
