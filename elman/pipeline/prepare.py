"""From a recipe to what a model trains on: what the data teaches before any model, and stores of numbers."""

from pathlib import Path

from elman.pipeline.recipe import Recipe
from elman.pipeline.tasks import Prepared


def prepare(recipe: Recipe, folder: Path) -> Prepared:
    """Learn tokenizers and labels and fill the stores under `folder`, or take those that are there."""
    kind = recipe.kind
    corpus = kind.corpus(recipe)
    if kind.saved(folder):
        task = kind.load(folder, recipe)
    else:
        task = kind.learn(recipe, corpus)
        task.save(folder)
    prepared = Prepared(task, corpus)
    for split in corpus.splits():
        prepared.stores[split] = task.store(corpus, split, folder / "data")
    return prepared
