"""Evaluating trained runs on their own splits or on other data, and comparing two runs."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from elman.config import override
from elman.corpus import DataConfig
from elman.corpus.stored_corpus import StoredCorpus
from elman.errors import ConfigError, DataError, first_line
from elman.evaluation import paired_difference, paired_scores
from elman.pipeline.recipe import check_targets, columns_of, stored_recipe
from elman.pipeline.tasks import TASKS, EvaluationResult, PreparedData
from elman.pipeline.trained_model import load
from elman.runs import Run

Sources = Sequence[str] | None


def evaluate_run(folder: str | Path, **options: Any) -> dict[str, Any]:
    """Scores as plain values; `data` is read with the settings of the run. Options are those of `result_of`."""
    result, repairs = result_of(folder, **options)
    return {**result.scores, "repairs": repairs, "notes": [*result.notes]}


def compare_runs(first: str | Path, second: str | Path, **options: Any) -> dict[str, Any]:
    """Scores of both, and paired tests of their difference."""
    task = _task_of_both(first, second)
    (one, _), (other, _) = result_of(first, **options), result_of(second, **options)
    if one.measure != other.measure or len(one.values) != len(other.values):
        pair = f"{one.measure} of {len(one.values)}, {other.measure} of {len(other.values)}"
        raise ConfigError(f"the two runs have different scores: {pair}")
    if not len(one.values):
        raise ConfigError(f"no paired test for task {task}: run `elman eval` for each and compare the intervals")
    found = paired_difference(one.values, other.values, one.weights)
    shared = {name: (one.others[name], score) for name, score in other.others.items() if name in one.others}
    return {
        "measure": one.measure,
        "others": {name: paired_scores(a.units, b.units, b.statistic).plain() for name, (a, b) in shared.items()},
        **TASKS[task].compare_outputs(one, other),
        "runs": {str(first): one.scores, str(second): other.scores},
        **found.plain(),
    }


def _task_of_both(first: str | Path, second: str | Path) -> str:
    """The task that two runs share."""
    if Path(first).resolve() == Path(second).resolve():
        raise ConfigError(f"{first} and {second} are the same run; give two to compare, or one to judge")
    one, other = (stored_recipe(Run.open(run)).task for run in (first, second))
    if one != other:
        raise ConfigError(f"different tasks: {first} is of task {one}, {second} of {other}; only runs of one compare")
    return one


def _with_columns(data: DataConfig, columns: str, task: str) -> DataConfig:
    """The settings of a run's data with other names of columns."""
    if "columns" not in type(data).model_fields:
        raise ConfigError(f"--columns goes with tables of labels, tags or pairs; the run is of task {task}")
    settings = override({"data": data.plain()}, columns_of(columns, task))
    return type(data).make(settings["data"], where="data")


def result_of(
    folder: str | Path,
    *,
    data: Sources = None,
    target: Sources = None,
    columns: str | None = None,
    split: str | None = None,
    lanes: int | None = None,
    device: str = "auto",
    search: dict[str, Any] | None = None,
    others: Sequence[str | Path] = (),
) -> tuple[EvaluationResult, list[str]]:
    """The scores of a run, or of an ensemble of several, and what reading had to mend in the data."""
    trained = load(folder, device, others)
    recipe, task = trained.with_search(search or {}), trained.task
    changes: dict[str, Any] = {}
    if lanes is not None:
        changes["evaluation"] = recipe.evaluation.model_copy(update={"lanes": lanes})
    if target:
        check_targets(task.name)
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
    stored = Run.at(folder).data if recipe.data.names_files and not data else None
    if stored:
        Run.at(folder).manifest.check(data=True)
    corpus: Any = StoredCorpus(stored, recipe.data) if stored else task.corpus(recipe)
    split = split or ("test" if "test" in corpus.splits() else "valid")
    if split not in corpus.splits():
        raise ConfigError(f"the run has no split {split!r}; it has {', '.join(corpus.splits())}")
    with tempfile.TemporaryDirectory() as place:
        prepared = PreparedData(task, corpus, {split: task.store(corpus, split, stored or Path(place))})
        try:
            result = task.evaluate(trained.model, prepared, recipe, split)
        except (LookupError, AssertionError, ValueError) as error:
            if stored is None:
                raise
            reason = f"the encoded data of split {split} do not fit the model: {first_line(error)}"
            raise DataError(reason, file=stored, remedy="name the text with --data") from error
        notes = (*result.notes, *task.length_warnings(trained.model, prepared, recipe))
        return result._replace(notes=notes), prepared.repairs()
