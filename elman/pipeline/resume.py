"""Settings of a resumed run: few may change, and an error names the others."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from elman.errors import ConfigError
from elman.pipeline.recipe import Recipe, read_recipe
from elman.pipeline.tasks.pretrained_vectors import SIDES, known_widths
from elman.runs import Run
from elman.untrusted import read_yaml

MAY_CHANGE = {
    "training.max_epochs",
    "training.max_steps",
    "training.max_minutes",
    "training.patience",
    "goals",
    "device",
    "name",
}
SHOWN = 3  # differences that an error names


CHOSEN = ("learning_rate", "warmup_steps")  # settings of training that suit the model where the recipe leaves them open


def source_of(source: Any, run: str | Path | None, resume: bool) -> Any:
    """The source of the recipe: the one given, else that of the run to resume, else none."""
    stored = Run(run) if run else None
    return Run.open(stored.folder).config if source is None and resume and stored and stored.config.exists() else source


def kept_widths(run: str | Path | None, resume: bool) -> dict[str, Any]:
    """Settings that a run to resume took from its file of word vectors, which is not read again."""
    stored = Run(run).config if run and resume else None
    model = read_yaml(stored).get("model") if stored and stored.exists() else None
    return known_widths(model) if isinstance(model, Mapping) else {}


def agreed(stored: Recipe, asked: Recipe) -> Recipe:
    """The stored recipe, with settings of `MAY_CHANGE` updated; any other difference is an error."""
    if stored.data.train == []:
        raise ConfigError(
            "the run was imported, not trained here: it has no data and no optimizer to go on with; "
            "start another --run on your text"
        )
    old, new = _flat(stored.plain()), _flat(asked.plain())
    differing = {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)}
    if asked.parameters:  # the widths were solved for, and will be again
        differing -= {f"model.{side}hidden_size" for side in ("", *(f"{side}." for side in SIDES))}
    differing -= {key for key in (f"training.{name}" for name in CHOSEN) if new[key] is None}  # stays as it was chosen
    wrong = sorted(differing - MAY_CHANGE)
    if wrong:
        shown = "; ".join(f"{key} was {old.get(key)!r}, now {new.get(key)!r}" for key in wrong[:SHOWN])
        more = f" (and {len(wrong) - SHOWN} more)" if len(wrong) > SHOWN else ""
        raise ConfigError(f"a resumed run keeps its settings, but {shown}{more}; leave them out, or use another --run")
    if not differing:
        return stored
    return read_recipe(
        stored, {key: json.dumps(new[key]) for key in differing}, complete=True
    )  # quoted: an override is YAML


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        inner = _flat(value, f"{prefix}{key}.") if isinstance(value, dict) and value else {f"{prefix}{key}": value}
        flat |= inner
    return flat
