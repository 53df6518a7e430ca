"""elman bench: how fast a trained model trains, generates and predicts on this machine."""

import json as jsonlib
import sys
from pathlib import Path
from typing import Any

import typer

from elman.cli import options, output
from elman.cli.options import option
from elman.cli.verbs import verb
from elman.errors import RunError


@verb("bench", no_args_is_help=True)
def bench(
    run: Path = options.RUN,
    rounds: int = typer.Option(10, min=1, help="Timing rounds in which all variants take turns."),
    to: Path | None = option(help="JSON file to write the results to as well.", default="none is written"),
    module: list[Path] | None = options.MODULE,
    device: str | None = options.DEVICE,
    json: bool = options.JSON,
) -> None:
    """Measure the speed of a trained model on this machine; the run is not changed. Takes about a minute.

    Training (updates on the run's own data), generation (tokens/s and latency), reading a prompt (prefill), prediction
    (texts/s) and peak memory; in float32 and int8, beside plain PyTorch and onnxruntime where they can run the model.
    A variant with wrong logits is not timed.

    Example: elman bench runs/mine --to speed.json
    """
    from elman.bench.run_speed import RunSpeed

    if to is not None:
        _require_writable(to)
    output.status(f"measuring {run}: about a minute")
    found = RunSpeed(run, rounds, device or "auto", lambda text: print(text, file=sys.stderr)).measure()
    if to is not None:
        to.write_text(jsonlib.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(f"wrote {to}", file=sys.stderr)
    if json:
        output.show_json(found)
    else:
        _show(found)


def _require_writable(path: Path) -> None:
    """Before anything is measured: results that cannot be written would be lost."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("a").close()
    except OSError as problem:
        raise RunError(f"cannot write results to {path}: {problem.strerror}") from problem


def _show(found: dict[str, Any]) -> None:
    measured = [name for name in ("training", "generation", "prefill", "prediction") if found.get(name)]
    for name in measured:
        _show_variants(name, found[name])
    rows = [[name, f"{found[name]['peak_memory_bytes'] / 2**20:,.1f}"] for name in measured]
    output.table("Peak memory above the loaded model", ["", "MiB"], rows)
    for name, reason in found["skipped"].items():
        output.say(f"Not measured: {name}: {reason}.")
    machine = ", ".join(f"{key} {value}" for key, value in found["machine"].items() if value)
    output.say(f"{found['run']}: {found['task']}, {found['parameters']:,} parameters, on {found['device']}; {machine}.")


def _show_variants(name: str, measured: dict[str, Any]) -> None:
    """One row per variant: units per second, times, and speed-up with its quartiles."""
    times = {"ms_per_update": "ms/update", "p50_ms": "p50 ms", "p95_ms": "p95 ms"}
    shown = [key for key in times if any(key in row for row in measured["variants"].values())]
    unit, against = measured["unit"], measured["against"]
    compared, rows = len(measured["variants"]) > 1, []
    for variant, row in measured["variants"].items():
        ratio = [f"{row['faster']:.2f} ({row['low']:.2f} to {row['high']:.2f})"] if compared else []
        rows.append([variant, round(row["per_second"]), *(row.get(key) for key in shown), *ratio])
    about = {
        "training": "batch {batch}, {precision}, {data}",
        "generation": "one text of {tokens} tokens; latency per token",
        "prefill": "a prompt of {tokens} tokens",
        "prediction": "{texts} texts; latency per text",
    }
    heads = ["", f"{unit}/s", *(times[key] for key in shown), *(["speed-up (quartiles)"] if compared else [])]
    title = f"{name.capitalize()}: {about[name].format(**measured)}"
    output.table(f"{title}; speed-up over {against}" if compared else title, heads, rows)
