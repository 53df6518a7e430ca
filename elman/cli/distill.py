"""elman distill: sequence-level knowledge distillation (Kim and Rush, 2016) of a translator."""

import sys
from pathlib import Path
from typing import Any

import typer

from elman.cli import options
from elman.cli.options import option
from elman.cli.verbs import verb
from elman.errors import RunError


@verb("distill", settings="recipe")
def distill(
    context: typer.Context,
    teacher: Path = typer.Argument(..., help="Run folder of the teacher, a trained translator."),
    run: Path | None = option(help="Run folder of the student.", default="no student is trained"),
    to: Path | None = option(help="File for the teacher's translations.", default="TEACHER/distilled.jsonl"),
    model: str = typer.Option("mask-predict", help="Model of the student, by name."),
    module: list[Path] | None = options.MODULE,
    device: str | None = options.DEVICE,
    json: bool = options.JSON,
) -> None:
    """Translate the training data with a teacher, then train a student on its translations.

    Dotted settings are those of the student's recipe. An existing file of translations by this teacher is used again.

    Example: elman distill runs/teacher --run runs/student
    """
    from elman.config import parse_overrides
    from elman.pipeline.distillation import check_origin, distill, student_recipe

    if run is not None:
        _refuse_used(run, module)
    target = to or teacher / "distilled.jsonl"
    if target.exists():
        count = check_origin(teacher, target)
        print(f"using the {count:,} existing translations: {target}", file=sys.stderr)
    else:
        count = distill(teacher, target, device or "auto", _show_progress)
        print(f"\nwrote {count:,} translations to {target}", file=sys.stderr)
    if run is None:
        return
    overrides: dict[str, Any] = {"model": model, **({"device": device} if device else {})}
    recipe = student_recipe(teacher, target, overrides | parse_overrides(context.obj))
    from elman.cli.train import run_training

    run_training(recipe, run, modules=module, json=json)


def _refuse_used(run: Path, modules: list[Path] | None) -> None:
    """Refuses a used run folder before anything is translated."""
    if (run / "config.yaml").exists():
        again = options.hint("train", "--run", run, "--resume", modules=modules)
        raise RunError(f"{run}: contains a run already; continue it with: {again}; or use another --run")
    if run.exists() and (not run.is_dir() or any(run.iterdir())):
        raise RunError(f"{run}: not empty and not a run; use another --run")


def _show_progress(done: int, total: int) -> None:
    if done % 256 == 0 or done == total:
        print(f"\rtranslating {done:,} of {total:,}", end="", file=sys.stderr, flush=True)
