"""Does a recipe still reach its number? `python -m benchmarks.recipes names-elman wikitext2-lstm` trains and says.

Real data is looked for where ELMAN_DATA points (docs/data.md); results go to benchmarks/results.
"""

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.harness import write
from elman import read_recipe, train

RECIPES = Path(__file__).parent.parent / "recipes"


def located(name: str) -> Any:
    """A recipe with its `data/...` paths moved to where the data is."""
    recipe = read_recipe(RECIPES / f"{name}.yaml")
    home = os.environ.get("ELMAN_DATA", "data")
    splits = {split: getattr(recipe.data, split) for split in ("train", "valid", "test")}
    moved = {f"data.{split}": path.replace("data/", f"{home}/", 1) for split, path in splits.items() if path}
    return read_recipe(recipe, moved)


def check(name: str) -> dict[str, Any]:
    began = time.monotonic()
    recipe = located(name)
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as place:
        for report in train(recipe, run=Path(place) / "run"):
            if report.kind == "validation":
                print(
                    f"{name}: epoch {report.epoch:.1f}, validation {report.values['valid_loss']:.4f}", file=sys.stderr
                )
            if report.kind == "result":
                results = report.values
    minutes = (time.monotonic() - began) / 60
    scores = {split: results[split] for split in ("valid", "test") if split in results}
    kept = {split: {key: scores[split][key] for key in ("loss", "perplexity", "bits_per_byte")} for split in scores}
    return {"goals": results["goals"], "minutes": minutes, **kept}


def main(names: list[str]) -> int:
    failed = False
    for name in names or sorted(path.stem for path in RECIPES.glob("*.yaml")):
        found = check(name)
        print(name, found, write(f"recipe-{name}", found))
        failed |= not all(goal["met"] for goal in found["goals"])
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
