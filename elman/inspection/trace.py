"""Traces: activations recorded while a text is read, as arrays beside its tokens and as heat maps."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from elman.errors import ConfigError, RecordingError, nearest
from elman.figures.colours import quantity_of
from elman.figures.figure import Figure
from elman.figures.panels import Array, HeatMap, Panel, as_array
from elman.files import atomic_write
from elman.inspection import downsampling
from elman.inspection.inspected_text import InspectedText, tokens_of
from elman.inspection.result import Numbers, data_frame
from elman.ops.attention import by_position

if TYPE_CHECKING:
    from pandas import DataFrame

SHOWN = ("gate", "state")  # quantities that a figure shows by default
INSTEAD = ("attention", "order")  # where a model has none of these
PANELS, LAYERS = 8, 4  # shown by default

T = TypeVar("T")


class AttentionMaps(NamedTuple):
    """The weights (heads, queries, keys) of one layer, with the tokens of both sides."""

    site: str
    weights: Tensor
    queries: list[str]
    keys: list[str]

    def numbers(self) -> Numbers:
        heads = range(1, 1 + len(self.weights))
        return Numbers.of(self.weights, head=heads, query=self.queries, key=self.keys)

    def heat_map(self, heads: Iterable[int] | None = None) -> HeatMap:
        """All heads or some of them side by side, queries by keys."""
        shown, names = range(len(self.weights)) if heads is None else heads, head_names(len(self.weights))
        maps = {names[head]: downsampling.shares(as_array(self.weights[head])) for head in shown}
        queries, keys = downsampling.names(self.queries), downsampling.names(self.keys)
        return HeatMap(maps, queries, keys, time="rows", title=self.site, quantity="attention")


class Trace:
    """`trace["layers.0.lstm.gate.forget"]` has one row for each of `trace.tokens`."""

    def __init__(
        self,
        tokens: list[str] | Mapping[str, list[str]],
        data: dict[str, Tensor],
        subtitle: str = "",
        command: str = "",
    ):
        self.sides = {"": tokens} if isinstance(tokens, list) else dict(tokens)
        self.data, self.subtitle, self.command = data, subtitle, command

    @property
    def tokens(self) -> list[str]:
        """The tokens that were read, one for each row of a site."""
        return next(iter(self.sides.values()))

    def tokens_of(self, site: str) -> list[str]:
        """Beside the rows of a site: of a translation the source or the target."""
        return tokens_of(self.sides, site)

    def __getitem__(self, site: str) -> Tensor:
        if site not in self.data:
            raise RecordingError(f"{site!r} was not recorded{nearest(site, self.data)}")
        return self.data[site]

    def __iter__(self) -> Iterator[str]:
        return iter(self.data)

    def figure(self, *sites: str) -> Figure:
        """A heat map of each site that matches the patterns; without patterns, of gates and states."""
        chosen = self.matching(sites)
        notes = []
        if not sites:
            known = self.default_sites()
            chosen = known[:PANELS]
            notes += [f"{PANELS} of {len(known)} sites are shown; choose others by name."] if chosen != known else []
        panels = [self.panel(site) for site in chosen]
        notes += downsampling.note(max((len(self[site]) for site in chosen), default=0))
        return Figure("Activations along the text", panels, notes, self.subtitle, command=self.command)

    def matching(self, patterns: Sequence[str]) -> list[str]:
        """The recorded sites that match any of the patterns."""
        chosen = [site for site in self.data if any(fnmatchcase(site, pattern) for pattern in patterns)]
        if patterns and not chosen:
            raise RecordingError(f"{', '.join(patterns)}: not recorded{nearest(patterns[0], self.data)}")
        return chosen

    def default_sites(self) -> list[str]:
        """Gates and states, or else attention weights and n-gram orders."""
        for quantities in (SHOWN, INSTEAD):
            found = [site for site in self.data if quantity_of(site) in quantities]
            if found := [site for site in found if not site.startswith("characters.")]:
                return found
        return list(self.data)

    def units(self, site: str) -> Array:
        """Values (time, units) of a site; of several axes beside time, each element is a unit."""
        values = self[site]
        return as_array(values.reshape(len(values), values[0].numel() if len(values) else 0))

    def attention(self, site: str) -> AttentionMaps:
        """Recorded attention weights with the tokens of both sides, without padding."""
        queries = self.tokens_of(site)
        keys = self.sides.get("encoder", queries) if "cross-attention" in site else queries
        return AttentionMaps(site, weights_of(site, self[site])[:, : len(queries), : len(keys)], queries, keys)

    def numbers(self, site: str) -> Numbers:
        """The values of a site with the names of their axes: tokens and units, or heads, queries and keys."""
        if quantity_of(site) == "attention" and self[site].dim() == 3:
            return self.attention(site).numbers()
        rows = self.units(site)
        return Numbers.of(rows, token=self.labels(site), unit=range(rows.shape[1]))

    def labels(self, site: str) -> list[str]:
        """The token of each row of a site; numbers for one vector of the whole text, or for characters of words."""
        tokens, count = self.tokens_of(site), len(self[site])
        return tokens if len(tokens) == count else [str(position) for position in range(count)]

    def frame(self, *sites: str) -> "DataFrame":
        """The sites that match the patterns as a pandas DataFrame, by default gates and states: a row for each value,
        and a column for each site where all have the same tokens and units, else columns `name` and `value`."""
        return data_frame({site: self.numbers(site) for site in self.matching(sites) or self.default_sites()})

    def plot(self, *sites: str) -> Any:
        """The figure of these sites as one of matplotlib."""
        return self.figure(*sites).plot()

    def panel(self, site: str) -> Panel:
        """The panel of one site."""
        values, tokens, quantity = self[site], self.labels(site), quantity_of(site)
        if quantity == "attention" and values.dim() == 3:
            return self.attention(site).heat_map()
        rows = self.units(site)
        names = [str(unit) for unit in range(rows.shape[1])]
        matrix = downsampling.means(rows.T)
        return HeatMap({"": matrix}, names, downsampling.names(tokens), row_axis="unit", title=site, quantity=quantity)

    def save(self, path: str | Path) -> Path:
        """As .safetensors the arrays, in any other format the figure."""
        if Path(path).suffix != ".safetensors":
            return self.figure().save(path)
        from safetensors.torch import save

        arrays = {site: values.contiguous() for site, values in self.data.items()}
        atomic_write(Path(path), save(arrays, {"tokens": json.dumps(self.sides)}))
        return Path(path)

    def show(self) -> None:
        """Print the figure in the terminal."""
        self.figure().show()

    def _repr_html_(self) -> str:
        return self.figure()._repr_html_()

    def __repr__(self) -> str:
        sizes = (f"{site} {' × '.join(map(str, values.shape))}" for site, values in self.data.items())
        return f"<Trace of {len(self.tokens)} tokens: {', '.join(sizes)}>"


def head_names(count: int) -> list[str]:
    """A single head needs no name."""
    return [f"head {head + 1}" if count > 1 else "" for head in range(count)]


def choose_layers(layers: Sequence[T], layer: int | None, have: str) -> tuple[Sequence[T], list[str]]:
    """The layer with this number, counted from 1, or the first few, with a note if some are left out."""
    if layer is None:
        left_out = f"{LAYERS} of {len(layers)} layers are shown; choose with --layer."
        return layers[:LAYERS], [left_out] if len(layers) > LAYERS else []
    if not 1 <= layer <= len(layers):
        raise ConfigError(f"layer {layer}: {len(layers)} layers {have}, counted from 1")
    return [layers[layer - 1]], []


def weights_of(site: str, weights: Tensor) -> Tensor:
    """Recorded weights (time, heads, keys) as (heads, time, keys); causal layers record keys by distance."""
    if "cross-attention" in site or "two-way" in site:
        return weights.transpose(0, 1)
    return by_position(weights.unsqueeze(0))[0]


def trace(inspected: InspectedText, sites: Sequence[str] = ("*",), subtitle: str = "", command: str = "") -> Trace:
    """Records the sites in one forward pass."""
    found = inspected.record(*sites)
    parts = {site: part[0] if len(part) == 1 else part for site, part in found.items()}
    return Trace(inspected.tokens, parts, subtitle, command)


def site_descriptions(model: torch.nn.Module, sites: Sequence[str]) -> dict[str, str]:
    """The documentation of each site by its layer, cell or model; empty where there is none."""
    from elman.cells import CELLS
    from elman.layers import LAYERS

    kinds = [(name, registry[name]) for registry in (CELLS, LAYERS) for name in registry]
    known = {f"{name}.{tap}": text for name, kind in kinds for tap, text in getattr(kind, "sites", {}).items()}
    own = {name: text for part in model.modules() for name, text in getattr(type(part), "sites", {}).items()}
    found = {}
    for site in sites:
        parts = site.split(".")
        suffixes = [".".join(parts[place:]) for place in range(len(parts))]
        innermost = [known[suffix] for suffix in reversed(suffixes) if suffix in known]
        found[site] = next(iter([*innermost, *(own[suffix] for suffix in suffixes if suffix in own)]), "")
    return found
