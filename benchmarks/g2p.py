"""Grapheme-to-phoneme conversion in many languages: single models of several seeds, and their ensemble.

`python -m benchmarks.g2p runs/g2p --languages geo kor --seeds 1 2 3 [--set model.label_smoothing=0.1]`
trains missing models below runs/g2p and prints the word error rate on the test set, as the shared task defines it.
Several processes may run in parallel, one language each. Data: ELMAN_DATA (docs/data.md).
"""

import argparse
import json
import os
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.reporting import write
from elman import load, train
from elman.generation import Ensemble
from elman.pipeline import TrainedModel

ROOT = Path(__file__).parent.parent
MEDIUM = ["arm_e", "bul", "dut", "fre", "geo", "hbs_latn", "hun", "jpn_hira", "kor", "vie_hanoi"]
BASELINE = dict(zip(MEDIUM, [7.0, 18.3, 14.7, 8.5, 0.0, 32.1, 1.8, 5.2, 16.3, 2.5], strict=True))


def files(language: str) -> dict[str, str]:
    home = os.environ.get("ELMAN_DATA", "data")
    return {split: f"{home}/g2p_wikipron/{language}.{split}.tsv" for split in ("train", "valid", "test")}


def trained(recipe: str, language: str, seed: int, folder: Path, changes: dict[str, str]) -> TrainedModel:
    run = folder / f"{language}-{seed}"
    if not (run / "results.json").exists():
        settings: dict[str, Any] = {f"data.{split}": path for split, path in files(language).items()}
        train(ROOT / "recipes" / f"{recipe}.yaml", run=run, overrides={**settings, "seed": seed, **changes})
    return load(run)


def wrong(model: TrainedModel, pairs: list[list[str]]) -> float:
    """Per cent of words with any error."""
    found = model.predict([source for source, _ in pairs])
    return 100 * mean(answer["target"] != target for answer, (_, target) in zip(found, pairs, strict=True))


def measure(recipe: str, language: str, seeds: list[int], folder: Path, changes: dict[str, str]) -> dict[str, Any]:
    models = [trained(recipe, language, seed, folder, changes) for seed in seeds]
    first, figures = models[0], {}
    together = TrainedModel(Ensemble([one.model for one in models]), first.task, first.recipe)
    for split in ("valid", "test"):
        lines = Path(files(language)[split]).read_text(encoding="utf-8").splitlines()
        pairs = [line.split("\t") for line in lines]
        figures[split] = {"single": [wrong(one, pairs) for one in models], "ensemble": wrong(together, pairs)}
    return {"language": language, "seeds": seeds, **figures, "baseline": BASELINE.get(language)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--languages", nargs="+", default=MEDIUM)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--recipe", default="g2p-medium")
    parser.add_argument("--set", nargs="*", default=[], dest="changes", metavar="section.setting=value")
    given = parser.parse_args()
    changes = dict(change.split("=", 1) for change in given.changes)
    rows = []
    for language in given.languages:
        rows.append(measure(given.recipe, language, given.seeds, given.folder, changes))
        print(json.dumps(rows[-1]), flush=True)
    single, ensemble = mean(mean(row["test"]["single"]) for row in rows), mean(row["test"]["ensemble"] for row in rows)
    print(f"mean of {len(rows)} languages, test: single {single:.2f} %, ensemble {ensemble:.2f} %")
    write(f"g2p-{'-'.join(given.languages)}", {"recipe": given.recipe, "changes": changes, "languages": rows})


if __name__ == "__main__":
    main()
