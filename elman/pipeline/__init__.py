"""From a recipe to a trained model: settings, tasks, data preparation, training runs, loading."""

from typing import TYPE_CHECKING

from elman.lazy import lazy_names

if TYPE_CHECKING:
    from elman.pipeline.recipe import Goal, Recipe, read_recipe, write_recipe
    from elman.pipeline.session import iterate, train
    from elman.pipeline.trained_model import TrainedModel, load

__all__ = ["Goal", "Recipe", "TrainedModel", "iterate", "load", "read_recipe", "train", "write_recipe"]

__getattr__, __dir__ = lazy_names(__name__, __file__)
