"""elman serve: trained models behind HTTP."""

from functools import cached_property
from inspect import Signature
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import typer

from elman.cli import options
from elman.cli.verbs import verb

RUNS = typer.Argument(
    ..., metavar="RUN…", help="Run folders of trained models; the name of a folder is the name of its model."
)


class Serve:
    """Serve trained models over HTTP: OpenAI's routes for generated text, /classify, /tag, /translate and others.

    It listens on this machine only and prints a token that clients send; other machines need TLS or a proxy. The log is
    JSON lines on stderr. Ctrl-C or SIGTERM lets accepted requests end; SIGHUP loads newer checkpoints.

    Example: elman serve runs/classifier --port 8000
    """

    __name__ = "serve"

    @cached_property
    def __signature__(self) -> Signature:
        """Read when this verb is asked for, since it imports all settings and reads their help texts."""
        from elman.serving.settings import ServeConfig

        parameters = [options.keyword("run", list[Path], RUNS)]
        for name, field in ServeConfig.described_fields().items():
            kind = plain_type(field.annotation)
            if kind is bool:
                option = typer.Option(False, f"--{name.replace('_', '-')}", help=field.description)
            else:
                text = field.description or ""
                default = "none" if field.default in (None, []) else str(field.default)
                option = typer.Option(None, help=text, show_default="default" not in text and default)
            parameters.append(options.keyword(name, kind if kind is bool else kind | None, option))
        parameters.append(options.keyword("module", list[Path] | None, options.MODULE))
        return Signature(parameters)

    @property
    def __annotations__(self) -> dict[str, Any]:  # type: ignore[override]
        return {name: one.annotation for name, one in self.__signature__.parameters.items()}

    def __call__(self, run: list[Path], module: list[Path] | None = None, **given: Any) -> None:
        from elman.serving.run import serve

        serve(*run, **{name: value for name, value in given.items() if value is not None})


def plain_type(annotation: Any) -> Any:
    """What typer reads for a setting; a choice of words is a text."""
    parts = [one for one in get_args(annotation) if one is not type(None)]
    if get_origin(annotation) is Literal:
        return str
    return parts[0] if type(None) in get_args(annotation) else annotation


verb("serve", no_args_is_help=True)(Serve())
