"""From one of their folders to a model of ours, and from a model to what such a folder holds."""

import re
from pathlib import Path
from typing import Any

from torch import Tensor

from elman.errors import ConfigError, DataError
from elman.models.base import MODELS
from elman.models.hugging_face.config_reader import Given
from elman.models.hugging_face.family import FAMILIES, Family
from elman.models.hugging_face.folder import CONFIG, Weights, read_json
from elman.models.hugging_face.signature import spelled
from elman.models.stack import on_meta


def from_folder(folder: str | Path, mask_id: int | None = None) -> Any:
    """The model in a folder, ready to use; whatever it asks for that we do not have is an error that names it.

    `mask_id` is the token that hides others, for models that need one and whose config.json does not say it.
    """
    folder = Path(folder)
    config = read_json(folder / CONFIG)
    kind = str(config.get("model_type"))
    if kind not in FAMILIES:
        raise DataError(
            f"model_type is {kind!r}", file=folder / CONFIG, remedy=f"{', '.join(FAMILIES)} can be imported"
        )
    family: Family = FAMILIES[kind]()
    if config.get("mask_token_id") is None:
        config["mask_token_id"] = mask_id
    model = _built(family, Given(config, folder / CONFIG))
    weights = Weights(folder)
    model.load_state_dict(_ours(family, model, weights, folder))
    return model.eval()


def to_contents(model: Any) -> tuple[Family, dict[str, Any], dict[str, Tensor]]:
    """The architecture that can say a model, its config.json and its tensors."""
    family = _expressing(model)
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


def _built(family: Family, given: Given) -> Any:
    settings, vocab_size = family.settings(given), given.whole("vocab_size", 0)
    given.finish()
    config: Any = MODELS[family.model].Config.make({"type": family.model, **settings}, where=str(given.file))
    return MODELS[family.model](config, vocab_size)


def _ours(family: Family, model: Any, weights: Weights, folder: Path) -> dict[str, Tensor]:
    used: set[str] = set()

    def read(name: str) -> Tensor:
        old = name
        for now, before in family.older:
            old = old.replace(now, before)
        names = [variant.removeprefix(prefix) for variant in (name, old) for prefix in ("", family.prefix)]
        found = next((variant for variant in names if variant in weights), None)
        if found is None:
            raise DataError(f"weight {name!r} is missing", file=folder, remedy="is it only a part of the model?")
        used.add(found)
        return weights[found]

    ours: dict[str, Tensor] = {}
    for row in family.rows(model):
        weight, wanted = row.join(read), model.get_parameter(row.ours)
        if weight.shape != wanted.shape:
            raise DataError(
                f"{' with '.join(row.theirs)} gives {tuple(weight.shape)}, but {CONFIG} asks for {tuple(wanted.shape)}",
                file=folder,
            )
        ours[row.ours] = weight
    used |= {family.copies} if model.config.tied_embeddings else set()  # a copy, where it is stored at all
    left = [name for name in weights if name not in used]
    left = [name for name in left if not re.fullmatch(family.buffers, name.removeprefix(family.prefix))]
    if left:
        more = f" (and {len(left) - 1} more)" if len(left) > 1 else ""
        raise DataError(f"weight {left[0]!r} has no place in a {family.name} model here{more}", file=folder)
    return ours


def _expressing(model: Any) -> Family:
    """The first architecture made of the model's layers, if it can say all its settings."""
    config: Any = getattr(model, "config", None)
    names = [name for name, _ in config.layers()] if hasattr(config, "layers") else []
    kind = getattr(config, "type", type(model).__name__)
    for name in FAMILIES:
        family: Family = FAMILIES[name]()
        count = len(names) // len(family.block)
        if kind == family.model and names and names == list(family.block) * count:
            mine = spelled(model)
            back = on_meta(lambda family=family: _built(family, _given(family, model)))
            theirs = spelled(back)
            for key, value in mine.items():
                if theirs.get(key) != value:
                    raise ConfigError(
                        f"model.{key} is {value!r}, which a {family.name} folder cannot say: there it is "
                        f"{theirs.get(key)!r}"
                    )
            return family
    shapes = "; ".join(f"{name}: [{', '.join(FAMILIES[name].block)}]" for name in FAMILIES)
    pattern = ", ".join(dict.fromkeys(names)) or kind
    raise ConfigError(f"model.pattern: no Hugging Face architecture repeats [{pattern}]; those known are {shapes}")


def _given(family: Family, model: Any) -> Given:
    return Given({"model_type": family.name, "vocab_size": model.vocab_size, **family.describe(model)})
