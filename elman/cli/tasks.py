"""elman tasks: model families on synthetic tasks, each of which tests one ability."""

import sys
from pathlib import Path
from typing import Any

import typer

from elman.cli import options, output
from elman.cli.options import option
from elman.cli.verbs import verb
from elman.errors import ConfigError, RunError

MEASURES = {
    "accuracy": "accuracy: share of correct answers",
    "squared error": "mean squared error; lower is better",
    "nats": "nats per position; lower is better",
}


@verb("tasks")
def tasks(
    task: list[str] | None = option(help="Synthetic task by name (`elman list`). Repeatable.", default="all"),
    family: list[str] | None = option(help="Model family by name: lstm, mamba. Repeatable.", default="all"),
    size: str = typer.Option(
        "quick", help="quick (small tasks, for two CPU cores) or full (published sizes, for a GPU)."
    ),
    seeds: int = typer.Option(1, min=1, help="Random seeds per task and family; the best score counts."),
    device: str | None = options.DEVICE,
    out: Path | None = option(
        help="Results file (JSONL); results that it holds are not computed again.", default="runs/tasks-<size>.jsonl"
    ),
    show: bool = typer.Option(False, "--show", help="Train nothing: show the results in FILES as one table."),
    files: list[Path] | None = typer.Argument(None, metavar="FILES", help="With --show: results files."),
    json: bool = options.JSON,
) -> None:
    """Train small models of each family on synthetic tasks (copying, recall, ...); compare with published results."""
    from elman.pipeline.synthetic_tasks import in_order, read_records, summary, verdict

    if show != bool(files):
        raise ConfigError("--show needs results files, and files are for --show only: elman tasks --show a.jsonl")
    records = read_records(files) if files else _run(task, family, size, seeds, device or "auto", out)
    if not records:
        raise RunError(f"{', '.join(map(str, files or []))}: holds no results; elman tasks --out FILE writes them")
    found = summary(records)
    if json:
        return output.show_json({"tasks": found, "results": [record.plain() for record in records]})
    families = in_order(name for one in found.values() for name in one["scores"])
    rows = [[name, *(_cell(one, name) for one in found.values())] for name in families]
    heads = ["\n".join([*name.split("-"), "chance", one["shown_chance"]]) for name, one in found.items()]
    output.table("Scores on synthetic tasks (* best)", ["family", *heads], rows)
    for name, one in found.items():
        print(f"{name}: {MEASURES[one['measure']]}")
    print()
    for name, one in found.items():
        print(verdict(name, one))


def _run(
    task: list[str] | None, family: list[str] | None, size: str, seeds: int, device: str, out: Path | None
) -> list[Any]:
    """Trains every combination that --out does not hold yet; progress goes to stderr."""
    import torch
    from rich.console import Console

    from elman.corpus.synthetic_tasks import TASKS
    from elman.pipeline.devices import choose_device
    from elman.pipeline.synthetic_tasks import FAMILIES, carry_out, plan

    attempts = plan(task or list(TASKS), family or list(FAMILIES), size, seeds)
    path = out or Path("runs") / f"tasks-{size}.jsonl"
    where = choose_device(device)
    if where.type == "cpu":
        torch.set_num_threads(1)  # for models this small a second thread is slower
    console = Console(file=sys.stderr, highlight=False)
    records: list[Any] = []
    with output.interruptible(f"the same command continues from {path}"), console.status("") as status:

        def listen(one: Any, step: int, score: float) -> None:
            status.update(f"{one.task.name} {one.family} seed {one.seed}: step {step}, {one.task.show(score)}")

        for one, record in zip(attempts, carry_out(attempts, path, where, listen), strict=True):
            records.append(record)
            score = "no finite score" if record.score is None else one.task.show(record.score)
            console.print(
                f"{len(records)}/{len(attempts)} {record.task} {record.family} seed {record.seed}: {score} after "
                f"{record.steps:,} steps, {record.seconds:,.0f} s",
                markup=False,
            )
    return records


def _cell(found: dict[str, Any], family: str) -> str | None:
    shown = found["shown"].get(family)
    return f"{shown} *" if family in found["best"] else shown
