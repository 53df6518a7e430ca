"""The score of a trained model on each example, computed once and kept beside the run."""

import json
from io import BytesIO

import numpy as np

from elman.comparison.plan import Job
from elman.pipeline.tasks import PreparedData
from elman.pipeline.tasks.race import ExampleValues
from elman.pipeline.trained_model import load
from elman.runs import atomic_write


def example_values(job: Job, prepared: PreparedData, split: str) -> ExampleValues:
    values, tables = job.folder / "units.npy", job.folder / "classes.json"
    if values.exists() and tables.exists():
        numbers, weights = np.load(values)
        return ExampleValues(numbers, weights, json.loads(tables.read_text()))
    trained = load(job.folder)
    found = trained.task.example_values(trained, prepared, split)
    memory = BytesIO()
    np.save(memory, np.stack([found.values, found.weights]), allow_pickle=False)
    atomic_write(values, memory.getvalue())
    atomic_write(tables, json.dumps(found.tables).encode())
    return found
