"""elman accept: takes the files of a run, a race or a sweep as they are now."""

from contextlib import nullcontext
from pathlib import Path

import typer

from elman.cli.verbs import verb


@verb("accept")
def accept(
    run: Path = typer.Argument(..., help="A run folder, or the folder of a race or a sweep with all its runs."),
) -> None:
    """Accept changes that were made to a run's files on purpose.

    A manifest has a hash of each file that answers or training depend on, and a changed file is refused. This writes
    the manifest anew from the files as they are. It makes one, too, for a run of an earlier version.

    Example: elman accept runs/mine
    """
    from elman.errors import RunError
    from elman.runs import Run

    folders = [path.parent for name in ("config.yaml", "manifest.json") for path in sorted(run.rglob(name))]
    folders = [one for one in dict.fromkeys(folders) if one.parent.name not in ("best", "last")]
    if not {"config.yaml", "race.yaml", "sweep.yaml"} & {path.name for path in run.glob("*.yaml")}:
        raise RunError(f"{run}: no run, race or sweep: it has no config.yaml, race.yaml or sweep.yaml")
    changed = 0
    for folder in folders:
        one = Run(folder)
        with one.lock() if one.config.exists() else nullcontext():
            for name in one.manifest.accept():
                print(f"accepted {folder / name}")
                changed += 1
    if not changed:
        print("nothing has changed")
