"""One tiny trained run of every task."""

from pathlib import Path

import pytest
from task_data import ENDS, TEXTS, settings_of

from elman.pipeline import train


@pytest.fixture(scope="session")
def data(tmp_path_factory) -> dict[str, dict[str, str]]:
    """For each task, the paths of train, valid and test."""
    folder = tmp_path_factory.mktemp("data")
    found: dict[str, dict[str, str]] = {}
    for task, make in TEXTS.items():
        found[task] = {}
        for seed, (split, count) in enumerate({"train": 200, "valid": 40, "test": 40}.items()):
            path = folder / f"{task}.{split}.{ENDS[task]}"
            path.write_text(make(count, seed))
            found[task][split] = str(path)
    return found


@pytest.fixture(scope="session")
def runs(data, tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    for task in TEXTS:
        train(overrides=settings_of(task, data), run=folder / task)
    return {task: folder / task for task in TEXTS}
