"""Catalog of layer families: core idea, limitation and cost of each, for listings and docs."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import yaml
from pydantic.fields import FieldInfo

from elman.cells import CELLS
from elman.config import Config
from elman.corpus.synthetic import LANGUAGES
from elman.errors import UnknownName
from elman.inspection.cost import LENGTH, WIDTH, Cost, standard, stated
from elman.layers import LAYERS
from elman.models import CLASSIFIERS, MODELS, TAGGERS, TRANSLATORS, NGram
from elman.registry import Registry, Traits
from elman.tokenizers import TOKENIZERS

KINDS: dict[str, Registry[Any]] = {"cell": CELLS, "layer": LAYERS, "model": MODELS}
KINDS |= {"classifier": CLASSIFIERS, "tagger": TAGGERS, "translator": TRANSLATORS}
KINDS |= {"tokenizer": TOKENIZERS, "language": LANGUAGES}
COSTS = ("training", "stepping", "state")
COUNTED = (
    f"Multiplications per token, at width {WIDTH} and length {LENGTH:,}, batch 1; training is forward and backward. "
    "The state is the number of elements that a row carries from token to token."
)


class Family(NamedTuple):
    """Traits of a cell, a layer or the n-gram model, and its cost at the standard width and length."""

    kind: str
    traits: Traits
    cost: Cost

    def explain(self, cost: str) -> str:
        """The value and its formula."""
        formula, number = getattr(self.traits, cost), getattr(self.cost, cost)
        known = number is None or formula.partition(";")[0] == str(number)
        return formula if known else f"{number:,.0f} = {formula}"

    def plain(self) -> dict[str, Any]:
        """As JSON types: each cost with its formula and its value."""
        traits = self.traits._asdict()
        costs = {name: {"formula": traits[name], "number": getattr(self.cost, name)} for name in COSTS}
        return {"kind": self.kind, **traits, **costs, "parameters": self.cost.parameters}


def families() -> dict[str, Family]:
    """All with traits; those that users register may have none."""
    found = {}
    for name in LAYERS:
        traits = LAYERS[name].traits
        if traits is not None:
            found[name] = Family("cell" if name in CELLS else "layer", traits, stated(standard(name), LENGTH))
    cost = stated(NGram(NGram.Config(), vocab_size=1), LENGTH)._replace(parameters=None)  # they grow with the text
    found["ngram"] = Family("model", NGram.traits, cost)
    return found


class Entry(NamedTuple):
    """Everything about one name: kinds, description, settings with default and meaning, and sites."""

    kinds: list[str]
    what: str
    settings: dict[str, tuple[str, str]]
    sites: dict[str, str]
    family: Family | None


def entry(name: str, more: Mapping[str, Registry[Any]] | None = None) -> Entry:
    """`more` are registries that this package does not know, by what they hold."""
    every = {**KINDS, **(more or {})}
    kinds = [kind for kind, registry in every.items() if name in registry]
    if not kinds:
        raise UnknownName("name", name, {known for registry in every.values() for known in registry})
    registry = every[kinds[0]]
    item: Any = registry[name]
    fields = {key: field for key, field in item.Config.described_fields().items() if key != "type"}
    settings = {key: (default(field), " ".join((field.description or "").split())) for key, field in fields.items()}
    return Entry(kinds, registry.describe()[name], settings, getattr(item, "sites", {}), families().get(name))


def default(field: FieldInfo) -> str:
    """In the syntax of a recipe."""
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    value = value.plain() if isinstance(value, Config) else list(value) if isinstance(value, tuple) else value
    return yaml.safe_dump(value, default_flow_style=True, width=10**6).removesuffix("...\n").strip()
