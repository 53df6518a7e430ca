"""Train recipes and check that they reach their goals.

    python -m benchmarks.recipes names-elman wikitext2-lstm          train them and print their scores
    python -m benchmarks.recipes sst2-lstm --seeds 3 --jobs 3         three seeds, side by side, and their mean

Each runs in its own process; recipe settings are options too. Data: ELMAN_DATA (docs/data.md). Results go to
benchmarks/results, run folders to --keep if given.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.reporting import write
from elman.untrusted import read_yaml

RECIPES = Path(__file__).parent.parent / "recipes"


def located(value: Any, home: str) -> Any:
    """Settings with `data/...` paths replaced by paths in the data folder."""
    if isinstance(value, Mapping):
        return {key: located(inner, home) for key, inner in value.items()}
    if isinstance(value, str) and value.startswith("data/"):
        return value.replace("data/", f"{home}/", 1)
    return value


def train(name: str, seed: int, place: Path, settings: list[str]) -> dict[str, Any]:
    """Trains a recipe once: scores by split, goals met or not, minutes; or the error."""
    moved = located(read_yaml(RECIPES / f"{name}.yaml")["data"], os.environ.get("ELMAN_DATA", "data"))
    paths = [word for key, value in moved.items() for word in (f"--data.{key}", json.dumps(value))]
    command = [sys.executable, "-m", "elman", "train", str(RECIPES / f"{name}.yaml"), "--seed", str(seed), "--json"]
    began = time.monotonic()
    run = ["--run", str(place / f"{name}-{seed}")]
    done = subprocess.run([*command, *paths, *run, *settings], capture_output=True, text=True, check=False)
    minutes = (time.monotonic() - began) / 60
    print(f"{name}, seed {seed}: {minutes:.1f} min, exit {done.returncode}", file=sys.stderr, flush=True)
    if done.returncode:
        return {"error": done.stderr[-2000:], "minutes": minutes}
    found = json.loads(done.stdout)
    kept = {split: figures(found[split]) for split in ("valid", "test") if split in found}
    return {"goals": found["goals"], "parameters": found["parameters"], "minutes": minutes, **kept}


def figures(scores: Mapping[str, Any]) -> dict[str, Any]:
    """Scores with their intervals and signatures."""
    kept = ("_interval", "_signature")
    return {key: value for key, value in scores.items() if isinstance(value, int | float) or key.endswith(kept)}


def means(runs: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Of every goal over all seeds: its mean and whether that is good enough."""
    goals = [run["goals"] for run in runs.values() if "goals" in run]
    found = {}
    for goal in goals[0] if goals else []:
        values = [other["value"] for run in goals for other in run if other["measure"] == goal["measure"]]
        mean = statistics.mean(values)
        met = (goal["at_most"] is None or mean <= goal["at_most"]) and (
            goal["at_least"] is None or mean >= goal["at_least"]
        )
        found[goal["measure"]] = {"mean": mean, "of": values, "met": met}
    return found


def main() -> int:
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("recipes", nargs="*", default=[])
    reader.add_argument("--seeds", type=int, default=1, help="seeds of each, from 1 on")
    reader.add_argument("--jobs", type=int, default=1, help="runs side by side")
    reader.add_argument("--keep", type=Path, help="folder for the runs (default: thrown away)")
    given, settings = reader.parse_known_args()
    names = given.recipes or sorted(path.stem for path in RECIPES.glob("*.yaml"))
    failed = False
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(given.jobs) as pool:
        place = given.keep or Path(temporary)
        seeds = range(1, given.seeds + 1)
        waiting = {name: {s: pool.submit(train, name, s, place, settings) for s in seeds} for name in names}
        for name, several in waiting.items():
            runs = {str(seed): one.result() for seed, one in several.items()}
            reached = means(runs)
            print(name, json.dumps(reached), write(f"recipe-{name}", {"goals": reached, "seeds": runs}))
            failed |= any("error" in run for run in runs.values()) or not all(one["met"] for one in reached.values())
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
