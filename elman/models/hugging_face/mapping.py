"""Converts a Hugging Face folder to our model, and our model to the contents of such a folder.

A model is exported only if its signature survives the way there and back. The signature consists of all settings that
affect a model's outputs, and is equal for two models that compute the same.
"""

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from elman.errors import ConfigError, DataError
from elman.models.base import MODELS
from elman.models.hugging_face.family import FAMILIES, Family, layer_settings
from elman.models.hugging_face.folder import CONFIG, ConfigReader, read_json, read_weight, weight_files
from elman.models.stack import on_meta

TRAINING = {
    *("dropout", "embedding_dropout", "input_dropout", "locked_dropout", "output_dropout", "weight_dropout"),
    *("balance_weight", "frame", "keep_share", "mask_share", "max_delta", "min_delta", "random_share"),
}
"""Settings that do not affect logits: of training, and of the tokens around a text."""
DERIVED = {"type", "pattern", "num_layers", "hidden_size", "embedding_size", "expansion"}
"""Settings from which others are derived; those are compared instead."""


def signature_of(model: Any) -> dict[str, Any]:
    """Settings by path, with defaults filled in and those without effect removed."""
    config = model.config
    found = {key: value for key, value in config.plain().items() if key not in TRAINING | DERIVED}
    if config.positions != "learned":
        found.pop("max_positions")
    if hasattr(model, "mask_id"):
        found["mask_id"] = model.mask_id
    found |= {"width": model.embedding.weight.shape[1], "layers": len(model.stack.layers)}
    for index, ((name, _), settings) in enumerate(zip(config.layers(), layer_settings(model), strict=True)):
        own = {key: value for key, value in settings.items() if key not in TRAINING | DERIVED}
        if own.get("positions") != "rotary":
            own.pop("rotary_base", None)
        found |= {f"layers.{index}.{name}.{key}": value for key, value in own.items()}
    return found


def from_folder(folder: str | Path, mask_id: int | None = None, notes: list[str] | None = None) -> Any:
    """Loads the model of a folder in evaluation mode; unsupported settings are errors that name the key.

    `mask_id` is the mask token for models that need one and whose config.json does not have it. `notes` collects what
    the user should know.
    """
    folder = Path(folder)
    config = read_json(folder / CONFIG)
    model_type = str(config.get("model_type"))
    if model_type not in FAMILIES:
        remedy = f"supported: {', '.join(FAMILIES)}"
        raise DataError(f"model_type is {model_type!r}", file=folder / CONFIG, remedy=remedy)
    family: Family = FAMILIES[model_type]()
    if config.get("mask_token_id") is None:
        config["mask_token_id"] = mask_id
    build = partial(_build, family, ConfigReader(config, folder / CONFIG))
    outline = on_meta(build)
    weights = _Weights(family, folder, family.tied if outline.config.tied_embeddings else {})
    if weights.differ():
        build = partial(_build, family, ConfigReader(config | {"tie_word_embeddings": False}, folder / CONFIG))
        outline = on_meta(build)
        if notes is not None:
            notes.append(f"{CONFIG} says that output and word embeddings are tied, but they differ: both are imported")
    found = weights.of(outline)  # rejects a model larger than the weights before it takes memory
    model = build()
    model.load_state_dict(found)
    return model.eval()


def export_contents(model: Any) -> tuple[Family, dict[str, Any], dict[str, Tensor]]:
    """The architecture that can express a model, its config.json and its tensors."""
    family = _matching_family(model)
    config = {
        "architectures": [family.architecture],
        "model_type": family.name,
        "vocab_size": model.vocab_size,
        "dtype": "float32",
        **family.describe(model),
    }
    tensors: dict[str, Tensor] = {}
    for row in family.rows(model):
        tensors |= row.split(model.get_parameter(row.ours).detach().cpu().float())
    return family, config, tensors


def _build(family: Family, reader: ConfigReader) -> Any:
    settings, vocab_size = family.settings(reader), reader.value("vocab_size", 0)
    reader.finish()
    config: Any = MODELS[family.model].Config.make({"type": family.model, **settings}, where=str(reader.file))
    return MODELS[family.model](config, vocab_size)


class _Weights:
    """The weights of a folder, by their current names; remembers which were read. Of two `tied` ones the folder may
    lack one."""

    def __init__(self, family: Family, folder: Path, tied: Mapping[str, str]):
        self.family, self.folder, self.files, self.tied = family, folder, weight_files(folder), tied
        self.partners = {**tied, **{original: copy for copy, original in tied.items()}}
        self.used: set[str] = set()

    def find(self, name: str) -> str | None:
        """The name in the folder, which may be an older one, or lack the prefix."""
        old = name
        for current, older in self.family.older:
            old = old.replace(current, older)
        names = [variant.removeprefix(prefix) for variant in (name, old) for prefix in ("", self.family.prefix)]
        return next((variant for variant in names if variant in self.files), None)

    def read(self, name: str) -> Tensor:
        found = self.find(name) or self.find(self.partners.get(name, name))
        if found is None:
            raise DataError(f"weight {name!r} is missing", file=self.folder, remedy="is this the whole model?")
        self.used.add(found)
        return read_weight(self.files[found], found)

    def differ(self) -> bool:
        """Whether the folder has tied weights that are not equal."""
        return any(not self.read(copy).equal(self.read(original)) for copy, original in self.tied.items())

    def of(self, model: Any) -> dict[str, Tensor]:
        """All weights of our model; one that is missing, misshapen or left over is an error."""
        family, ours = self.family, dict[str, Tensor]()
        for row in family.rows(model):
            expected = model.get_parameter(row.ours)
            try:
                weight = row.join(self.read)
            except RuntimeError as error:
                raise DataError(f"{' and '.join(row.theirs)} do not fit together: {error}", file=self.folder) from None
            if weight.shape != expected.shape:
                found, implied = tuple(weight.shape), tuple(expected.shape)
                reason = f"{' with '.join(row.theirs)} has shape {found}, but {CONFIG} implies {implied}"
                raise DataError(reason, file=self.folder)
            ours[row.ours] = weight
        left = [name for name in self.files if name not in self.used]
        left = [name for name in left if not re.fullmatch(family.buffers, name.removeprefix(family.prefix))]
        if left:
            more = f" (and {len(left) - 1} more)" if len(left) > 1 else ""
            raise DataError(f"unexpected weight {left[0]!r} in a {family.name} model{more}", file=self.folder)
        return ours


def _matching_family(model: Any) -> Family:
    """The first architecture with the model's layers, if it can express all its settings."""
    config: Any = getattr(model, "config", None)
    names = [name for name, _ in config.layers()] if hasattr(config, "layers") else []
    kind = getattr(config, "type", type(model).__name__)
    for name in FAMILIES:
        family: Family = FAMILIES[name]()
        count = len(names) // len(family.block)
        if kind == family.model and names and names == list(family.block) * count:
            mine = signature_of(model)
            their_config = {"model_type": family.name, "vocab_size": model.vocab_size, **family.describe(model)}
            theirs = signature_of(on_meta(partial(_build, family, ConfigReader(their_config))))
            for key, value in mine.items():
                if theirs.get(key) != value:
                    raise ConfigError(
                        f"model.{key} is {value!r}, which a {family.name} folder cannot express (there it is "
                        f"{theirs.get(key)!r})"
                    )
            return family
    shapes = "; ".join(f"{name}: [{', '.join(FAMILIES[name].block)}]" for name in FAMILIES)
    pattern = ", ".join(dict.fromkeys(names)) or kind
    raise ConfigError(
        f"model.pattern: no supported Hugging Face architecture has the block [{pattern}]; supported are {shapes}"
    )
