"""elman distill: a student that learns what a teacher writes."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from elman.cli import options
from elman.errors import RunError


def distill(
    context: typer.Context,
    teacher: Annotated[Path, typer.Argument(help="Run folder of a model that translates.")],
    run: Annotated[
        Path | None, options.option(help="Run folder of the student to train.", default="none is trained")
    ] = None,
    to: Annotated[
        Path | None, options.option(help="File for the teacher's translations.", default="TEACHER/distilled.jsonl")
    ] = None,
    model: Annotated[str, typer.Option(help="Kind of student.")] = "mask-predict",
    module: options.Module = None,
    device: options.Device = None,
    json: options.Json = False,
) -> None:
    """Let a teacher translate its training data, then train a student on that; settings are the student's.

    Translations that are there already are taken, if this teacher wrote them.
    """
    from elman.config import parse_overrides
    from elman.pipeline.distillation import check_origin, distill, student_recipe

    if run is not None:
        _refuse_used(run, module)
    target = to or teacher / "distilled.jsonl"
    if target.exists():
        count = check_origin(teacher, target)
        print(f"taking the {count:,} translations that are there: {target}", file=sys.stderr)
    else:
        count = distill(teacher, target, device or "auto", _tell)
        print(f"\n{count:,} translations are in {target}", file=sys.stderr)
    if run is None:
        return
    overrides: dict[str, Any] = {"model": model, **({"device": device} if device else {})}
    recipe = student_recipe(teacher, target, overrides | parse_overrides(context.obj))
    from elman.cli.train import run_training

    run_training(recipe, run, modules=module, json=json)


def _refuse_used(run: Path, modules: list[Path] | None) -> None:
    """Before anything is translated in vain."""
    if (run / "config.yaml").exists():
        again = options.hint("train", "--run", run, "--resume", modules=modules)
        raise RunError(f"{run}: contains a run already; go on with it: {again}; or give another --run")
    if run.exists() and (not run.is_dir() or any(run.iterdir())):
        raise RunError(f"{run}: not empty and not a run; give another --run")


def _tell(done: int, whole: int) -> None:
    if done % 256 == 0 or done == whole:
        print(f"\rtranslating {done:,} of {whole:,}", end="", file=sys.stderr, flush=True)
