"""The command line: a verb per file, settings of a recipe as dotted options, results on stdout, the rest on stderr."""

import re
import sys
import warnings
from collections.abc import Sequence
from typing import Annotated, Any

import typer

import elman
from elman.cli import (
    bench,
    check,
    compare,
    data,
    distill,
    evaluate,
    export,
    generate,
    import_,
    init,
    inspect,
    lab,
    listing,
    options,
    predict,
    score,
    tasks,
    train,
)
from elman.errors import ConfigError, ElmanError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"elman {elman.__version__}")
        raise typer.Exit


@app.callback()
def options_of_all(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=show_version, is_eager=True)
    ] = False,
) -> None:
    """Sequence models from n-grams to attention: train, judge and use them on your own text."""


app.command("init")(init.init)
app.command("check")(check.check)
app.command("train")(train.train)
app.command("compare")(compare.compare)
app.command("eval")(evaluate.evaluate)
app.command("generate")(generate.generate)
app.command("predict")(predict.predict)
app.command("score")(score.score)
app.command("distill")(distill.distill)
app.command("import")(import_.import_model)
app.command("export")(export.export)
app.command("list")(listing.list_names)
app.command("tasks")(tasks.tasks)
app.command("bench", no_args_is_help=True)(bench.bench)
app.add_typer(data.app, name="data")
app.add_typer(inspect.app, name="inspect")
app.add_typer(lab.app, name="lab")

DOTTED = re.compile(r"(--)?[A-Za-z_]+(\.[\w-]+)+(=.*)?", re.DOTALL)
TAKES_SETTINGS = ("init", "check", "train", "compare", "distill")
TAKES_SEARCH = ("predict", "eval")  # settings of search only: what was trained stays as it is
NAMES_SITES = ("inspect",)  # whose edits look like settings: layers.0.lstm.gate.forget=1


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit: 0 well, 1 failed, 2 wrongly asked."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    words, settings = (words, []) if words[:1] in ([verb] for verb in NAMES_SITES) else split_settings(words)
    options.WORDS.set([*words, *settings])
    try:
        if settings and (not words or words[0] not in (*TAKES_SETTINGS, *TAKES_SEARCH)):
            searching = f"those of search also with {' and '.join(TAKES_SEARCH)}"
            raise ConfigError(f"settings like {settings[0]} go with {', '.join(TAKES_SETTINGS)}; {searching}")
        with warnings.catch_warnings():
            warnings.showwarning = tell
            app(words, obj=settings, prog_name="elman")
    except ConfigError as error:
        fail(error, 2)
    except ElmanError as error:
        fail(error, 1)
    except BrokenPipeError:  # the reader of our output has left, as `head` does
        sys.stderr.close()
        raise SystemExit(0) from None


def split_settings(words: list[str]) -> tuple[list[str], list[str]]:
    """Dotted settings (`--training.max_epochs 3`, `training.max_epochs=3`) apart from all other words."""
    others: list[str] = []
    settings: list[str] = []
    waiting = iter(words)
    for word in waiting:
        dotted = DOTTED.fullmatch(word)
        if dotted is None or not (dotted[1] or dotted[3]):
            others.append(word)
        else:
            settings.append(word)
            if not dotted[3]:
                settings.append(next(waiting, ""))
    return others, settings


def tell(message: Warning | str, *details: Any, **more: Any) -> None:
    """A warning for whoever reads it, not for whoever wrote the code."""
    print(f"elman: {message}", file=sys.stderr)


def fail(error: Exception, code: int) -> None:
    print(f"elman: {error}", file=sys.stderr)
    raise SystemExit(code)
