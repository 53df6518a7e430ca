"""From a recipe to what a model trains on: tokenizers and labels learned from the data, and encoded stores."""

from pathlib import Path

from elman.corpus.sources import cached_files
from elman.corpus.stored_corpus import NAME as CORPUS
from elman.corpus.stored_corpus import CorpusFacts
from elman.files import discard
from elman.pipeline.recipe import Recipe
from elman.pipeline.tasks import PreparedData
from elman.pipeline.tasks.base import data_changed
from elman.runs import FileManifest


@cached_files()
def prepare(recipe: Recipe, folder: Path) -> PreparedData:
    """Learn tokenizers and labels and build the stores under `folder`, or open those that are there."""
    task_class, manifest = recipe.task_class, FileManifest(folder)
    corpus = task_class.corpus(recipe)
    if task_class.is_saved(folder) and not manifest.exists:
        manifest.accept()  # prepared by an earlier version
    manifest.check()
    if task_class.is_saved(folder) and manifest.names() >= {*task_class.saved_files}:
        task = task_class.from_files(folder, recipe)
    else:
        task = task_class.learn(recipe, corpus)
        task.save(folder)
        if not manifest.record(*task_class.saved_files):
            raise data_changed(folder)
    prepared = PreparedData(task, corpus)
    for split in corpus.splits():
        names = [f"data/{split}.json", f"data/{split}.pairs.json"]
        for name in names:
            if not manifest.unchanged(name):
                discard(folder / name)  # unfinished, damaged, or of other data: built from the data
        prepared.stores[split] = task.store(corpus, split, folder / "data")
        written = [name for name in names if (folder / name).exists()]
        if not manifest.record(*written):
            for name in written:
                discard(folder / name)
            raise data_changed(folder)
    facts = CorpusFacts.of(corpus).model_dump_json(indent=1)
    manifest.write(f"data/{CORPUS}", facts.encode())
    return prepared
