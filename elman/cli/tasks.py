"""elman tasks: which family of models can do what, in one table."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from elman.cli import options
from elman.errors import ConfigError, RunError

MEASURES = {
    "accuracy": "share of right answers",
    "squared error": "mean squared error, less is better",
    "nats": "nats for each position, less is better",
}


def tasks(
    task: Annotated[list[str] | None, options.option(help="Task to try. Repeatable.", default="all")] = None,
    family: Annotated[list[str] | None, options.option(help="Family of models. Repeatable.", default="all")] = None,
    size: Annotated[str, typer.Option(help="quick (two cores) or full (a GPU).")] = "quick",
    seeds: Annotated[int, typer.Option(min=1, help="Attempts at each; the best one counts.")] = 1,
    device: options.Device = None,
    out: Annotated[
        Path | None, options.option(help="File of results; what it holds is not run again.", default="by size in runs/")
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Run nothing: show the results in FILES as one table.")] = False,
    files: Annotated[list[Path] | None, typer.Argument(help="With --show: files of results.")] = None,
    json: options.Json = False,
) -> None:
    """Train small models of each family on synthetic tasks, and compare with what was published."""
    from elman.pipeline.synthetic_tasks import in_order, read_records, summary, verdict

    if show != bool(files):
        raise ConfigError("--show takes files of results, and files are only for --show: elman tasks --show a.jsonl")
    records = read_records(files) if files else _run(task, family, size, seeds, device or "auto", out)
    if not records:
        raise RunError(f"{', '.join(map(str, files or []))}: no results in it; elman tasks --out FILE writes them")
    found = summary(records)
    if json:
        options.show_json({"tasks": found, "results": [record.plain() for record in records]})
        return
    families = in_order(name for one in found.values() for name in one["scores"])
    rows = [[name, *(_cell(one, name) for one in found.values())] for name in families]
    heads = ["\n".join([*name.split("-"), "chance", one["shown_chance"]]) for name, one in found.items()]
    options.table("Abilities (* best)", ["family", *heads], rows)
    for name, one in found.items():
        print(f"{name}: {MEASURES[one['measure']]}")
    print()
    for name, one in found.items():
        print(verdict(name, one))


def _run(
    task: list[str] | None, family: list[str] | None, size: str, seeds: int, device: str, out: Path | None
) -> list[Any]:
    """All that was asked for, told on stderr as it comes."""
    import torch
    from rich.console import Console

    from elman.corpus.synthetic_tasks import TASKS
    from elman.pipeline.devices import choose_device
    from elman.pipeline.synthetic_tasks import FAMILIES, carry_out, plan

    attempts = plan(task or list(TASKS), family or list(FAMILIES), size, seeds)
    path = out or Path("runs") / f"tasks-{size}.jsonl"
    where = choose_device(device)
    if where.type == "cpu":
        torch.set_num_threads(1)  # models are so small that a second thread costs more than it brings
    console = Console(file=sys.stderr, highlight=False)
    records: list[Any] = []
    try:
        with console.status("") as status:

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
    except KeyboardInterrupt:
        print(f"interrupted; the same command goes on from {path}", file=sys.stderr)
        raise typer.Exit(130) from None
    return records


def _cell(found: dict[str, Any], family: str) -> str | None:
    shown = found["shown"].get(family)
    return f"{shown} *" if family in found["best"] else shown
