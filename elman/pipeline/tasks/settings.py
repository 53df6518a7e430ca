"""From the plain settings of a recipe to the typed settings of a task."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from elman.config import Config, typed, unknown_key, with_type
from elman.corpus.config import DataConfig
from elman.errors import ConfigError, brief
from elman.layers import LAYERS
from elman.models.stack import StackConfig, check_size, on_meta
from elman.registry import Registry
from elman.tokenizers import TOKENIZERS

Settings = dict[str, Any]
TRANSFORMER = "transformer"  # a model name that stands for a pattern of layers, which each task has in its own form


class TaskSettings(ABC):
    """The part of a task that is independent of data: its defaults, and what a recipe may say."""

    name: ClassVar[str] = ""  # set when the task is registered
    data_config: ClassVar[type[DataConfig]] = DataConfig
    models: ClassVar[Registry[Any]]
    """Kinds of model."""
    default_model: ClassVar[str]
    tokenizers: ClassVar[Registry[Any]] = TOKENIZERS
    default_tokenizer: ClassVar[str | Settings]
    metrics: ClassVar[tuple[str, ...]] = ()
    """What the best checkpoint can be chosen by, besides the loss."""
    implied_by: ClassVar[tuple[str, ...]] = ()
    """Kinds of model that imply this task where a recipe names none."""
    has_targets: ClassVar[bool] = False
    """Whether data has a second text beside each first one, perhaps in a file of its own."""
    searches: ClassVar[bool] = False
    """Whether the recipe's section `search` applies."""
    synthetic: ClassVar[bool] = False
    """Whether `data.language` can take the place of files."""
    provides_body: ClassVar[bool] = False
    """Whether models of other tasks can start from its word vectors and layers."""
    starts_from: ClassVar[bool] = False
    """Whether its models can start from another run."""
    inherits_tokenizer: ClassVar[bool] = False
    """Whether the tokenizer of that run comes along."""

    @classmethod
    def complete(cls, settings: Settings) -> Settings:
        """Settings with defaults filled in that depend on others."""
        data = settings.get("data") or {}
        has_data = isinstance(data, Mapping) and (data.get("train") or (cls.synthetic and data.get("language")))
        if not has_data:
            raise ConfigError(f"task {cls.name} needs data: give --data FILE, or data.train in the recipe")
        return {"tokenizer": cls.default_tokenizer, **settings}

    @classmethod
    def typed_data(cls, settings: Any) -> DataConfig:
        return settings if isinstance(settings, DataConfig) else cls.data_config.make(settings, where="data")

    @classmethod
    def columns(cls, parts: list[int | str]) -> Settings:
        """The settings behind --columns."""
        return {"data.columns": parts}

    @classmethod
    def typed_tokenizer(cls, settings: Any) -> Config:
        return pick(cls.tokenizers, "tokenizer", settings)

    @classmethod
    def typed_model(cls, settings: Any) -> Config:
        """The name of a layer stands for a model of it; settings that only the layer knows go to the layer."""
        if isinstance(settings, str | Mapping) and not isinstance(settings, Config):
            settings = {"type": cls.default_model, **with_type(settings)}
            name = settings["type"]
            if name == TRANSFORMER:
                settings = cls.transformer({key: value for key, value in settings.items() if key != "type"})
            elif isinstance(name, str) and name not in cls.models:
                if name not in LAYERS:
                    raise cls.models.unknown(name, also=[*LAYERS, TRANSFORMER])
                settings = cls.of_layer(name, settings)
        return pick(cls.models, "model", settings)

    @classmethod
    def of_layer(cls, name: str, settings: Mapping[str, Any]) -> Settings:
        """Settings of a model whose pattern is one layer; a pattern given beside the name wins."""
        layer, stack = LAYERS[name].Config.model_fields, cls.models[cls.default_model].Config.model_fields
        known = {*layer, *stack, "type"}
        for key in settings:
            if key not in known:
                raise ConfigError(unknown_key(key, "model", known))
        own = {key: value for key, value in settings.items() if key in layer and key not in stack}
        rest = {key: value for key, value in settings.items() if key not in own}
        return {"pattern": [{name: own}], **rest, "type": cls.default_model}

    @classmethod
    def transformer(cls, settings: Settings) -> Settings:
        """Attention and feed-forward layers in turn, pre-norm with residual connections; settings that only attention
        knows go to it."""
        made = cls.of_layer("attention", settings)
        if "pattern" not in settings:
            positions = {} if settings.get("positions", "none") != "none" else {"positions": "rotary"}
            made["pattern"] = [{"attention": {**positions, **made["pattern"][0]["attention"]}}, {"feedforward": {}}]
        return {"residual": True, "norm": "pre", **made}

    @classmethod
    def starting_body(cls, run: str, stored: Settings, asked: Mapping[str, Any]) -> Settings:
        """Model settings that give a new model the same body as the run whose recipe is `stored`."""
        from elman.pipeline.tasks.warm_start import language_body

        return language_body(run, stored, asked)

    @classmethod
    @abstractmethod
    def build_smallest(cls, config: Any) -> Any:
        """A model for the smallest vocabulary."""

    @classmethod
    def check_model(cls, config: Any) -> None:
        """Build on the meta device, so that invalid settings are rejected before any data is read."""
        check_size(on_meta(lambda: cls.build_smallest(config)))

    @classmethod
    def run_name(cls, config: Any) -> str:
        """The part of a run folder's name for the model: its layers, or its type."""
        pattern = getattr(getattr(config, "decoder", config), "pattern", [])
        return "-".join(dict.fromkeys(name for entry in pattern for name in entry)) or config.type


def bidirectional(settings: Settings, **join: str) -> Settings:
    """The same model with a causal layer made bidirectional."""
    ((layer, own),) = settings["pattern"][0].items()
    if LAYERS[layer].causal:
        settings["pattern"] = [{"bidirectional": {"layer": {layer: own}, **join}}]
    return settings


def in_layers(
    pattern: list[Any], layer: str, given: Mapping[str, Any], known: Registry[Any] = LAYERS
) -> tuple[list[Settings], Settings]:
    """A pattern with settings that only its layers of this name know, and not the stack, inside of these layers; and
    the other settings. Inside of bidirectional layers too; attention is also two-way and cross-attention."""
    own = {key: value for key, value in given.items() if key not in StackConfig.model_fields}
    taken: set[str] = set()

    def filled(entry: Any) -> Settings:
        ((name, at),) = ({entry: {}} if isinstance(entry, str) else entry).items()
        if name == "bidirectional":
            (inner,), _ = in_layers([at.get("layer", "lstm")], layer, own)
            taken.update(own.keys() & next(iter(inner.values())))
            return {name: {**at, "layer": inner}}
        if name not in (layer, f"two-way-{layer}", f"cross-{layer}"):
            return {name: at}
        fits = {key: value for key, value in own.items() if key in known[name].Config.model_fields}
        taken.update(fits)
        return {name: {**at, **fits}}

    made = [filled(entry) for entry in pattern]
    return made, {key: value for key, value in given.items() if key not in taken}


def pick(registry: Registry[Any], where: str, settings: Any) -> Config:
    """Typed settings of the item that `type` names, or of a name alone."""
    if isinstance(settings, Config):
        return settings
    settings = {"type": settings} if isinstance(settings, str) else settings
    if not isinstance(settings, Mapping) or not isinstance(settings.get("type"), str):
        raise ConfigError(f"{where}: needs a type, one of {', '.join(registry)}, but got {brief(settings)}")
    return typed(settings["type"], registry[settings["type"]].Config).make(settings, where)


def untyped(settings: Mapping[str, Any]) -> Settings:
    """Without the name that chose them."""
    return {key: value for key, value in settings.items() if key != "type"}
