"""elman predict: labels, numbers, tags, translations or next tokens for the records of a file or the lines of stdin."""

import sys
from functools import partial
from pathlib import Path
from typing import Any

import typer

from elman.cli import options, output
from elman.cli.options import option
from elman.cli.verbs import verb
from elman.errors import ConfigError

FORMATS = "text, words (separated by spaces), csv, tsv, jsonl, parquet or conll"


@verb("predict", settings="search")
def predict(
    context: typer.Context,
    run: Path = options.RUN,
    data: str | None = option(
        "--data", help="File to predict: a table, JSON lines, Parquet, CoNLL, or lines of text.", default="stdin"
    ),
    columns: str | None = option(
        help="The column to predict from, by name, or by number in a table without a header; translation: also the "
        "column of targets to score.",
        default="that of training",
    ),
    out: Path | None = option(
        "--out", help="File to write; an interrupted job goes on where it stopped.", default="stdout"
    ),
    form: str | None = option("--from", help=f"Format of the input: {FORMATS}.", default="by suffix; text for stdin"),
    to: str | None = option("--to", help="Format of the output, likewise.", default="by suffix; that of the input"),
    probabilities: bool = typer.Option(
        False,
        "--probabilities",
        help="Add the probabilities of all labels or tags. Translation: all candidates of the beam, best "
        "first, as line number, rank, score, log-probability and text.",
    ),
    min_probability: float | None = option(
        help="Classifiers: leave the answer empty where it is less probable.", default="0: answer always"
    ),
    beam_size: int | None = options.BEAM_SIZE,
    others: list[Path] | None = options.OTHERS,
    ray: str | None = option(
        help="Predict the parts of --out on the Ray cluster at this address; `local` starts one here.", default="none"
    ),
    module: list[Path] | None = options.MODULE,
    device: str | None = options.DEVICE,
    json: bool = typer.Option(False, "--json", help="Write JSON lines; the same as --to jsonl."),
) -> None:
    """Predict for every record or line: its label, number, tags, translation, or the most probable next tokens.

    Records keep all their fields; answers are added as columns, or as fields of JSON lines. Search settings of
    translation are options as in a recipe: --search.length_penalty 1. A target beside its source is scored. Workers of
    a cluster (--ray) read the run folder, which their disks share, and give the same file.

    Example: elman predict runs/classifier --data new.csv --columns text --out answers.csv
    """
    from elman.pipeline.predict_tables import TablePrediction
    from elman.pipeline.trained_model import load

    if json and to not in (None, "jsonl"):
        raise ConfigError(f"--json writes JSON lines, but --to says {to}; leave one out")
    if ray and out is None:
        raise ConfigError("--ray predicts parts of a file: name it with --out")
    kind: Any = TablePrediction
    if ray:
        from elman.comparison.user_modules import read_modules
        from elman.pipeline.ray_predictions import RayPrediction

        runs, modules = [run.absolute(), *map(Path.absolute, others or ())], [one.absolute() for one in module or ()]
        kind = partial(RayPrediction, ray, runs, device or "auto", partial(read_modules, modules))
    job = kind(
        load(run, device or "auto", others or ()),
        data or "-",
        form=form,
        to="jsonl" if json else to,
        columns=[int(name) if name.isdigit() else name for name in columns.split(",")] if columns else None,
        probabilities=probabilities,
        min_probability=min_probability or 0.0,
        search=options.search_settings(context.obj, beam_size),
    )
    try:
        if out is None:
            job.to_stream(_write)
        else:
            with output.rows_status() as listen:
                done = job.to_file(out, listen)
            print(f"Wrote {done:,} answers to {out}")
    finally:
        for repair in job.repairs:
            print(f"repaired: {repair}", file=sys.stderr)
        for note in job.notes:
            output.note(note)


def _write(part: bytes) -> None:
    sys.stdout.write(part.decode())
