"""From a recipe to what a model trains on: tokenizers and labels learned from the data, and encoded stores."""

from pathlib import Path

from elman.corpus.sources import cached_files
from elman.pipeline.recipe import Recipe
from elman.pipeline.tasks import PreparedData


@cached_files()
def prepare(recipe: Recipe, folder: Path) -> PreparedData:
    """Learn tokenizers and labels and build the stores under `folder`, or open those that are there."""
    task_class = recipe.task_class
    corpus = task_class.corpus(recipe)
    if task_class.is_saved(folder):
        task = task_class.load(folder, recipe)
    else:
        task = task_class.learn(recipe, corpus)
        task.save(folder)
    prepared = PreparedData(task, corpus)
    for split in corpus.splits():
        prepared.stores[split] = task.store(corpus, split, folder / "data")
    return prepared
