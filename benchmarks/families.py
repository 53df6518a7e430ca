"""All neural families on WikiText-2 with 25 M parameters and the same number of training tokens, as one table.

    python -m benchmarks.families --jobs 4            all, four at a time
    python -m benchmarks.families lstm gru rnn        these
    python -m benchmarks.families --steps 30          only the time per step

Common settings are in recipes/wikitext2-families.yaml; the width of each model follows from the number of parameters.
Data: ELMAN_DATA (docs/data.md); results go to benchmarks/results.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.reporting import write

BLOCKS = {"residual": True, "norm": "pre", "dropout": 0.4}
FAMILIES: dict[str, dict[str, Any]] = {
    **{
        name: {"pattern": [name], "num_layers": 2}
        for name in ("rnn", "gru", "lstm", "peephole", "coupled", "gated", "layernorm-lstm")
    },
    # The free form, whose state may grow at every step, learns nothing here (docs/findings.md).
    "residual": {"pattern": [{"residual": {"form": "antisymmetric"}}], "num_layers": 2},
    "window": {"pattern": [{"window": {"context": 8}}], "num_layers": 1, "norm": "none", "dropout": 0.4},
    "convolution": {
        "pattern": [{"convolution": {"kernel_size": 3, "dilation": d, "gated": True}} for d in (1, 2, 4, 8)],
        **BLOCKS,
    },
    "mingru": {"pattern": ["mingru", "swiglu"], "num_layers": 6, **BLOCKS},
    "minlstm": {"pattern": ["minlstm", "swiglu"], "num_layers": 6, **BLOCKS},
    "attention": {
        "pattern": [{"attention": {"positions": "rotary", "context": 256, "head_size": 64}}, "feedforward"],
        "num_layers": 8,
        **BLOCKS,
    },
    "swiglu": {
        "pattern": [{"attention": {"positions": "rotary", "context": 256, "head_size": 64}}, "swiglu"],
        "num_layers": 8,
        "norm_type": "rms",
        **BLOCKS,
    },
    "experts": {
        "pattern": [
            {"attention": {"positions": "rotary", "context": 256, "head_size": 64}},
            {"experts": {"num_experts": 4}},
        ],
        "num_layers": 4,
        "norm_type": "rms",
        **BLOCKS,
    },
    "linear-attention": {"pattern": [{"linear-attention": {"head_size": 64}}, "swiglu"], "num_layers": 8, **BLOCKS},
    "s4": {"pattern": ["s4", "swiglu"], "num_layers": 6, **BLOCKS},
    "s4d": {"pattern": ["s4d", "swiglu"], "num_layers": 6, **BLOCKS},
    "mamba": {"pattern": ["mamba"], "num_layers": 4, "norm_type": "rms", **BLOCKS},
    "hybrid": {
        "pattern": ["lstm", {"attention": {"positions": "rotary", "context": 256, "head_size": 64}}],
        "num_layers": 2,
        **BLOCKS,
    },
}
RECIPE = Path(__file__).parent.parent / "recipes" / "wikitext2-families.yaml"


def train(name: str, place: Path, settings: Iterable[str]) -> dict[str, Any]:
    """One family in a process of its own; its scores, size and time, or what went wrong."""
    home = os.environ.get("ELMAN_DATA", "data")
    data = {split: f"{home}/wikitext2/{split}.txt.gz" for split in ("train", "valid", "test")}
    dotted = {key if "." in key else f"model.{key}": value for key, value in FAMILIES[name].items()}
    own = [word for key, value in dotted.items() for word in (f"--{key}", json.dumps(value))]
    paths = [word for split, path in data.items() for word in (f"--{split.replace('train', 'data')}", path)]
    run = place / name
    command = [
        sys.executable,
        "-m",
        "elman",
        "train",
        str(RECIPE),
        "--run",
        str(run),
        "--json",
        *paths,
        *own,
        *settings,
    ]
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    minutes = (time.monotonic() - began) / 60
    print(f"{name}: {minutes:.1f} min, exit {done.returncode}", file=sys.stderr, flush=True)
    if done.returncode:
        return {"error": done.stderr[-2000:], "minutes": minutes}
    found = json.loads(done.stdout)
    speed = found.get("tokens_per_second")
    row: dict[str, Any] = {"minutes": minutes, "parameters": found.get("parameters"), "tokens_per_second": speed}
    return row | {split: found[split]["perplexity"] for split in ("valid", "test") if split in found}


def main() -> int:
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("families", nargs="*", default=[])
    reader.add_argument("--jobs", type=int, default=1, help="families trained side by side")
    reader.add_argument(
        "--steps", type=int, default=0, help="stop after so many updates: only the speed is of use then"
    )
    reader.add_argument("--keep", type=Path, help="folder for the runs (default: thrown away)")
    given, settings = reader.parse_known_args()
    if given.steps:
        settings += ["--training.max_steps", str(given.steps), "--training.log_every", str(max(1, given.steps // 2))]
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(given.jobs) as pool:
        place = given.keep or Path(temporary)
        names = given.families or list(FAMILIES)
        rows = dict(zip(names, pool.map(lambda name: train(name, place, settings), names), strict=True))
    for name, row in sorted(rows.items(), key=lambda item: item[1].get("test", 1e9)):
        print(f"{name:<18}", json.dumps(row))
    if not given.steps:
        print(write("families-wikitext2", rows))
    return int(any("error" in row for row in rows.values()))


if __name__ == "__main__":
    raise SystemExit(main())
