"""Trained runs against data: a run's own held-out split, or any other data read the same way; two runs side by side."""

import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from elman.config import override, read_yaml
from elman.corpus import DataConfig
from elman.errors import ConfigError, MissingExtra
from elman.evaluation import paired_bleu, paired_difference, paired_scores
from elman.evaluation.jsonable import jsonable
from elman.pipeline.recipe import columns_of, read_recipe
from elman.pipeline.tasks import Judged, Prepared
from elman.pipeline.tasks.base import Parts
from elman.pipeline.tasks.translate import Translate
from elman.pipeline.trained_model import load
from elman.runs import Run

Places = Sequence[str] | None


def evaluate_run(folder: str | Path, **options: Any) -> dict[str, Any]:
    """Scores as plain values; `data` is read with the run's own settings. Options are those of `judge_run`."""
    judged, repairs = judge_run(folder, **options)
    return {**judged.scores, "repairs": repairs, "notes": [*judged.notes]}


def compare_runs(first: str | Path, second: str | Path, **options: Any) -> dict[str, Any]:
    """Scores of both, and whether the second is better than the first by more than luck."""
    _check_pair(first, second)
    (one, _), (other, _) = judge_run(first, **options), judge_run(second, **options)
    if one.measure != other.measure or len(one.values) != len(other.values):
        raise ConfigError(
            f"the two are not judged alike: {one.measure} of {len(one.values)}, {other.measure} of {len(other.values)}"
        )
    if not len(one.values):
        raise ConfigError("two language models are compared by `elman eval` of each: their intervals tell")
    found = paired_difference(one.values, other.values, one.weights)
    whole: dict[str, Any] = {
        "others": {name: _compared(one.others[name], part) for name, part in other.others.items() if name in one.others}
    }
    if one.written and other.written and one.references:
        with suppress(MissingExtra):
            whole["bleu"] = jsonable(paired_bleu(one.written, other.written, one.references))
    return {
        "measure": one.measure,
        **whole,
        "runs": {str(first): one.scores, str(second): other.scores},
        **found.plain(),
    }


def _check_pair(first: str | Path, second: str | Path) -> None:
    """Two runs of one task."""
    if Path(first).resolve() == Path(second).resolve():
        raise ConfigError(f"{first} and {second} are the same run; give two to compare, or one to judge")
    one, other = (read_recipe(read_yaml(Run.open(run).config)).task for run in (first, second))
    if one != other:
        raise ConfigError(f"different tasks: {first} is of task {one}, {second} of {other}; only runs of one compare")


def _compared(first: Parts, second: Parts) -> dict[str, Any]:
    return paired_scores(first.units, second.units, second.statistic).plain()


def _with_columns(data: DataConfig, columns: str, task: str) -> DataConfig:
    """The settings of a run's data with other names of columns."""
    if "columns" not in type(data).model_fields:
        raise ConfigError(f"--columns goes with tables of labels, tags or pairs; the run is of task {task}")
    settings = override({"data": data.plain()}, columns_of(columns, task))
    return type(data).make(settings["data"], where="data")


def judge_run(
    folder: str | Path,
    *,
    data: Places = None,
    target: Places = None,
    columns: str | None = None,
    split: str | None = None,
    lanes: int | None = None,
    device: str = "auto",
    search: dict[str, Any] | None = None,
    others: Sequence[str | Path] = (),
) -> tuple[Judged, list[str]]:
    """The scores of a run, or of several that answer together, and what was mended while the data was read."""
    trained = load(folder, device, others)
    recipe, task = trained.searching(search or {}), trained.task
    changes: dict[str, Any] = {}
    if lanes is not None:
        changes["evaluation"] = recipe.evaluation.model_copy(update={"lanes": lanes})
    if target and not isinstance(task, Translate):
        raise ConfigError(f"--target goes with task translate; the run is of task {task.name}")
    if columns and not data:
        raise ConfigError("--columns names those of --data: give both")
    if data:
        if split is not None:
            raise ConfigError("give either --data or --split: a text has no splits")
        alone: dict[str, Any] = {"train": None, "valid": None, "test": list(data), "language": None}
        alone |= {"train_target": None, "valid_target": None, "test_target": list(target) if target else None}
        known = type(recipe.data).model_fields
        own = recipe.data.model_copy(update={key: value for key, value in alone.items() if key in known})
        changes["data"] = _with_columns(own, columns, recipe.task) if columns else own
        split = "test"
    elif recipe.data.train == []:
        raise ConfigError("the run was imported and has no text of its own; give one with --data")
    recipe = recipe.model_copy(update=changes)
    corpus = recipe.kind.corpus(recipe)
    split = split or ("test" if "test" in corpus.splits() else "valid")
    if split not in corpus.splits():
        raise ConfigError(f"the run has no split {split!r}; it has {', '.join(corpus.splits())}")
    with tempfile.TemporaryDirectory() as place:
        prepared = Prepared(task, corpus, {split: task.store(corpus, split, Path(place))})
        judged = task.judge(trained.model, prepared, recipe, split)
        notes = task.too_long(trained.model, prepared, recipe)
        return judged._replace(notes=tuple(notes)), prepared.repairs()
