"""elman lab: experiments of a lecture on sequence models, each with a question, figures, numbers and an answer."""

from pathlib import Path
from typing import Any

import typer

from elman.cli import options, output
from elman.cli.options import option
from elman.cli.verbs import verb_group

app = verb_group("lab", help="Experiments from n-grams to attention; each takes up to two minutes.")


@app.command("list")
def list_labs(json: bool = options.JSON) -> None:
    """List the experiments with topic and question."""
    from elman.inspection.labs import LABS

    if json:
        return output.show_json(
            [{"name": one.name, "topic": one.topic, "question": one.question} for one in LABS.values()]
        )
    rows = [[one.name, one.topic, one.question] for one in LABS.values()]
    output.table("Labs", ["name", "topic", "question"], rows, lines=True)
    output.say("Run one with: elman lab run NAME")


@app.command("run")
def run(
    name: str = typer.Argument(..., metavar="NAME", help="Name of the experiment, as `elman lab list` shows it."),
    seed: int = typer.Option(0, min=0, help="Random seed."),
    set_: list[str] | None = option(
        "--set", help="Setting to change, such as size=128; the page lists them. Repeatable.", default="the question's"
    ),
    to: Path | None = option(help="HTML page to write.", default="runs/labs/<name>.html"),
    check: bool = typer.Option(False, "--check", help="Exit with code 1 if a number is outside its expected range."),
    json: bool = options.JSON,
) -> None:
    """Run an experiment and write its HTML page.

    Example: elman lab run gradient-distance --set size=128 --set forget_bias=3
    """
    from elman.files import atomic_write, make_folder
    from elman.inspection.labs import LABS, find

    chosen = find(LABS, name)
    path = to or Path("runs") / "labs" / f"{name}.html"
    make_folder(path.parent)
    with output.training_status() as progress:
        report = chosen.run(seed, progress, **_settings(set_ or []))
    atomic_write(path, report.html(options.command()).encode("utf-8"))
    if json:
        output.show_json(report.plain())
    else:
        output.say(chosen.question)
        output.table("Numbers", ["quantity", "measured", "range of five seeds", "inside"], report.rows())
        output.say(chosen.answer)
        for words, why in chosen.try_next.items():
            output.say(f"Next: {why}")
            print(f"  {options.hint('lab', 'run', name, '--set', words)}")
        output.say(f"Wrote {path}.")
    if check and report.outside():
        raise typer.Exit(1)


def _settings(words: list[str]) -> dict[str, Any]:
    """`size=128` as a name and a value."""
    from elman.errors import ConfigError
    from elman.plain_yaml import parse_yaml

    pairs = [word.partition("=") for word in words]
    for word, (_, equals, _) in zip(words, pairs, strict=True):
        if not equals:
            raise ConfigError(f"--set {word}: write NAME=VALUE, such as size=128")
    return {name.strip(): parse_yaml(value) for name, _, value in pairs}
