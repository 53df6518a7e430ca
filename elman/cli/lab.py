"""elman lab: the lecture path as experiments, each with a question, a picture, numbers and an answer."""

from pathlib import Path
from typing import Annotated

import typer

from elman.cli import options
from elman.cli.waiting import training_line

app = typer.Typer(no_args_is_help=True, help="Experiments of the lecture path, each within two minutes.")


@app.callback()
def lab() -> None:
    pass


@app.command("list")
def list_labs(json: options.Json = False) -> None:
    """Every lab with its topic and its question."""
    from elman.inspection.labs import LABS

    if json:
        options.show_json([{"name": one.name, "topic": one.topic, "question": one.question} for one in LABS.values()])
        return
    rows = [[one.name, one.topic, one.question] for one in LABS.values()]
    options.table("labs", ["name", "topic", "question"], rows, lines=True)
    options.say("Run one with: elman lab run NAME")


@app.command("run")
def run(
    name: Annotated[str, typer.Argument(help="Of a lab, as elman lab list shows it.")],
    seed: Annotated[int, typer.Option(min=0, help="All dice come from this number.")] = 0,
    to: Annotated[Path | None, options.option(help="The page to write.", default="runs/labs/<name>.html")] = None,
    check: Annotated[bool, typer.Option("--check", help="Fail if a number falls outside its range.")] = False,
    json: options.Json = False,
) -> None:
    """Do the experiment and write its page."""
    from elman.inspection.labs import LABS, find
    from elman.runs.files import atomic_write, make_folder

    chosen = find(LABS, name)
    path = to or Path("runs") / "labs" / f"{name}.html"
    make_folder(path.parent)
    with training_line() as progress:
        report = chosen.run(seed, progress)
    atomic_write(path, report.html(options.command()).encode("utf-8"))
    if json:
        options.show_json(report.plain())
    else:
        options.say(chosen.question)
        options.table("numbers", ["what", "measured", "five seeds gave", "inside"], report.rows())
        options.say(chosen.answer)
        options.say(f"Wrote {path}.")
    if check and report.outside():
        raise typer.Exit(1)
