"""What passed inside while a text was read: arrays beside its tokens, and pictures of them."""

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import torch
from torch import Tensor

from elman.errors import RecordingError, nearest
from elman.evaluation.inference_mode import inference_mode
from elman.figures.figure import Figure
from elman.figures.panels import HeatMap, Panel, numbers
from elman.figures.scales import quantity_of
from elman.inspection import downsampling
from elman.inspection.inspected_text import InspectedText, tokens_of
from elman.ops import taps
from elman.ops.attention.reference import by_position

SHOWN = ("gate", "state")  # what a picture shows if nothing is asked for
INSTEAD = ("attention", "order")  # and what else, if there is none of these
MOST = 8  # panels of a picture that nobody asked for in detail


class Trace:
    """`trace["layers.0.lstm.gate.forget"]` has one row for each of `trace.tokens`."""

    def __init__(
        self, tokens: list[str] | Mapping[str, list[str]], data: dict[str, Tensor], of: str = "", command: str = ""
    ):
        self.sides = {"": tokens} if isinstance(tokens, list) else dict(tokens)
        self.data, self.of, self.command = data, of, command

    @property
    def tokens(self) -> list[str]:
        """The tokens that were read, one for each row of a site."""
        return next(iter(self.sides.values()))

    def tokens_of(self, site: str) -> list[str]:
        """Beside the rows of a site: of a translation the source or what is written."""
        return tokens_of(self.sides, site)

    def __getitem__(self, site: str) -> Tensor:
        if site not in self.data:
            raise RecordingError(f"{site!r} was not recorded{nearest(site, self.data)}")
        return self.data[site]

    def __iter__(self) -> Iterator[str]:
        return iter(self.data)

    def figure(self, *sites: str) -> Figure:
        """A heat map of each site, time to the right; without names, of gates and states."""
        chosen = [site for site in self.data if any(fnmatchcase(site, pattern) for pattern in sites)]
        if sites and not chosen:
            raise RecordingError(f"{', '.join(sites)}: not recorded{nearest(sites[0], self.data)}")
        notes = []
        if not sites:
            chosen = self.telling()
            if len(chosen) > MOST:
                notes = [f"{MOST} of {len(chosen)} sites are shown; ask for others by name."]
        chosen = chosen[: None if sites else MOST]
        panels = [self.panel(site) for site in chosen]
        notes += downsampling.note(max((len(self[site]) for site in chosen), default=0))
        return Figure("What passes inside, token by token", panels, notes, self.of, command=self.command)

    def telling(self) -> list[str]:
        """The sites worth a look: gates and states, or else where attention lies or which n-gram was used."""
        for wanted in (SHOWN, INSTEAD):
            found = [site for site in self.data if quantity_of(site) in wanted and not site.startswith("characters.")]
            if found:
                return found
        return list(self.data)

    def panel(self, site: str) -> Panel:
        """The panel of a figure that shows one site."""
        values, tokens, quantity = self[site], self.tokens_of(site), quantity_of(site)
        if quantity == "attention" and values.dim() == 3:
            return weight_maps(site, values, tokens, self)
        rows = values.reshape(len(values), -1) if values.numel() else values.reshape(len(values), 0)
        if len(tokens) != len(rows):  # a verdict on the whole text, or characters of words
            tokens = [str(place) for place in range(len(rows))]
        names = [str(unit) for unit in range(rows.shape[1])]
        matrix = downsampling.means(numbers(rows).T)
        return HeatMap({"": matrix}, names, downsampling.names(tokens), row_axis="unit", title=site, quantity=quantity)

    def save(self, path: str | Path) -> Path:
        """As .safetensors the numbers, in any other format the picture."""
        if Path(path).suffix != ".safetensors":
            return self.figure().save(path)
        import json

        from safetensors.torch import save

        from elman.runs.files import atomic_write

        atomic_write(
            Path(path),
            save({site: values.contiguous() for site, values in self.data.items()}, {"tokens": json.dumps(self.sides)}),
        )
        return Path(path)

    def show(self) -> None:
        """Print gates and states as a figure in the terminal."""
        self.figure().show()

    def _repr_html_(self) -> str:
        return self.figure()._repr_html_()


def weight_maps(site: str, weights: Tensor, tokens: list[str], trace: Trace) -> HeatMap:
    """Heads side by side: who looks (rows) at whom (columns)."""
    seen = trace.sides.get("encoder", tokens) if "cross-attention" in site else tokens
    square = weights_of(site, weights)
    heads = {f"head {head + 1}" if len(square) > 1 else "": numbers(part) for head, part in enumerate(square)}
    maps = {name: downsampling.shares(part[: len(tokens), : len(seen)]) for name, part in heads.items()}
    rows, columns = downsampling.names(tokens), downsampling.names(seen)
    return HeatMap(maps, rows, columns, time="rows", title=site, quantity="attention")


def weights_of(site: str, weights: Tensor) -> Tensor:
    """Recorded weights (time, heads, places) as (heads, time, places); a causal layer's places are told by distance."""
    if "cross-attention" in site or "two-way" in site:
        return weights.transpose(0, 1)
    return by_position(weights.unsqueeze(0))[0]


def trace(reading: InspectedText, sites: Sequence[str] = ("*",), of: str = "", command: str = "") -> Trace:
    """Read once and keep what passed at the sites."""
    with inference_mode(reading.model), taps.record(*sites) as seen:
        reading.run(1)
    found = {site: seen[site] for site in seen}
    parts = {site: part[0] if len(part) == 1 else part for site, part in found.items()}
    return Trace(reading.tokens, parts, of, command)


def meanings(model: torch.nn.Module, sites: Sequence[str]) -> dict[str, str]:
    """Each site in a sentence, as its layer or model tells it; empty where nobody does."""
    from elman.cells import CELLS
    from elman.layers import LAYERS

    told = {}
    own = {name: text for part in model.modules() for name, text in getattr(type(part), "sites", {}).items()}
    for site in sites:
        words = site.split(".")
        found = ""
        for place, word in enumerate(words):
            kinds = [registry[word] for registry in (CELLS, LAYERS) if word in registry]
            for kind in kinds:
                found = getattr(kind, "sites", {}).get(".".join(words[place + 1 :]), found)
        rests = [".".join(words[place:]) for place in range(len(words))]
        told[site] = found or next((own[rest] for rest in rests if rest in own), "")
    return told
