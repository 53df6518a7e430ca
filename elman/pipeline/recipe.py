"""A whole run as one typed tree: data, tokenizer, model, training, evaluation, generation."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SerializeAsAny

from elman.config import Config, commented_yaml, override, read_yaml, typed
from elman.corpus import DataConfig
from elman.errors import ConfigError
from elman.evaluation import EvaluationConfig
from elman.generation import GenerationConfig
from elman.layers import LAYERS
from elman.models import MODELS, StackConfig
from elman.models.stack import on_meta
from elman.registry import Registry
from elman.tokenizers import TOKENIZERS
from elman.training import TrainingConfig


def _pick(registry: Registry[Any], where: str, settings: Any) -> Config:
    if isinstance(settings, Config):
        return settings
    if not isinstance(settings, Mapping) or not isinstance(settings.get("type"), str):
        raise ConfigError(f"{where}: needs a type, one of {', '.join(registry)}, but got {settings!r}")
    return typed(settings["type"], registry[settings["type"]].Config).make(settings, where)


def _tokenizer(settings: Any) -> Config:
    return _pick(TOKENIZERS, "tokenizer", {"type": settings} if isinstance(settings, str) else settings)


def _model(settings: Any) -> Config:
    """The name of a layer stands for a stack of it; settings that only the layer knows go to the layer."""
    settings = {"type": settings} if isinstance(settings, str) else settings
    if isinstance(settings, Mapping):
        settings = {"type": "stack", **settings}
        name = settings["type"]
        if isinstance(name, str) and name not in MODELS:
            if name not in LAYERS:
                raise MODELS.unknown(name, also=LAYERS)
            layer, stack = LAYERS[name].Config.model_fields, MODELS["stack"].Config.model_fields
            own = {key: value for key, value in settings.items() if key in layer and key not in stack}
            rest = {key: value for key, value in settings.items() if key not in own}
            settings = {"pattern": [{name: own}], **rest, "type": "stack"}  # a pattern given beside the name wins
    return _pick(MODELS, "model", settings)


class Goal(Config):
    """What a recipe promises."""

    measure: str = "valid.loss"
    """Figure of the run's results, by its place there: valid.loss, test.perplexity, valid.language.excess.relative."""
    at_most: float | None = None
    """Largest value that keeps the promise."""
    at_least: float | None = None
    """Smallest value that keeps it."""
    minutes: float | None = None
    """Time it may take."""
    machine: str = "cpu"
    """Where that time holds."""


class Recipe(Config):
    """Everything that decides a run."""

    name: str = ""
    """What to call the run; empty makes a name of data and model."""
    seed: int = Field(1, ge=0)
    """All dice of the run come from this number."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to compute; auto takes an accelerator if there is one."""
    threads: int = Field(0, ge=0)
    """CPU threads; 0 takes one for small recurrent models, which are fastest so, and all cores otherwise."""
    parameters: str | int = 0
    """Solve model.hidden_size for about so many parameters (5M, 250k); 0 leaves it as it is."""
    data: DataConfig = DataConfig()
    """Where the text comes from."""
    tokenizer: Annotated[SerializeAsAny[Config], BeforeValidator(_tokenizer)] = Field(
        default_factory=lambda: _tokenizer("word")
    )
    """How text becomes tokens."""
    model: Annotated[SerializeAsAny[Config], BeforeValidator(_model)] = Field(default_factory=lambda: _model("lstm"))
    """What predicts the next token."""
    training: TrainingConfig = TrainingConfig()
    """How it learns."""
    evaluation: EvaluationConfig = EvaluationConfig()
    """How it is judged."""
    generation: GenerationConfig = GenerationConfig()
    """How it speaks."""
    goals: list[Goal] = Field(default_factory=list)
    """What the recipe must reach; `elman train` says at the end whether it did."""


def read_recipe(
    source: "str | Path | Mapping[str, Any] | Recipe | None" = None, overrides: Mapping[str, Any] | None = None
) -> Recipe:
    """From a YAML file or plain settings (or neither), with dotted overrides on top."""
    if isinstance(source, Recipe):
        source = source.plain()
    settings = dict(source) if isinstance(source, Mapping) else read_yaml(source) if source else {}
    settings = override(settings, overrides or {})
    data = settings.get("data") or {}
    if not isinstance(data, Mapping) or (data.get("train") is None and data.get("language") is None):
        settings = override(settings, {"data.language": {"type": "agreement"}})
    if "tokenizer" not in settings:  # a language has words; of a text nothing is known, and characters always work
        settings["tokenizer"] = "character" if data.get("train") else "word"
    recipe = Recipe.make(settings)
    if not recipe.parameters:  # else the width is still open
        _built(recipe.model)
    return recipe


def _built(config: Any) -> None:
    """Build without memory, so that what cannot be built is refused before any data is read."""
    if isinstance(config, StackConfig):
        on_meta(lambda: MODELS[config.type](config, 2))


def write_recipe(recipe: Recipe) -> str:
    return commented_yaml(recipe)
