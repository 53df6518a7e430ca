"""Registry of views: what `elman inspect` shows of a trained model while it reads a text.

A view is a function `(inspected: InspectedText, subtitle: str, **options) -> Figure` in a module of this folder and an
entry in `VIEWS`. The command line makes a verb of it, with its options and those of all views: run, text, output file,
device. Functions are named, not imported, so that listing the verbs does not import torch.
"""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Literal, NamedTuple


class Option(NamedTuple):
    """A command-line option, and the parameter of the function that it sets; an option for a list is repeatable."""

    flag: str
    parameter: str
    type: Any
    help: str
    default: int | str  # a text says what the function does by default

    @property
    def value(self) -> int | None:
        return self.default if isinstance(self.default, int) else None


class View(NamedTuple):
    name: str
    function: str  # module:function, the module in this folder
    help: str
    options: Sequence[Option] = ()
    reads: Literal["text", "file"] = "text"
    edits: Literal["", "apply", "compare"] = ""
    """Whether activations can be edited: for the whole figure, or beside the unedited run, as parameter `changes`."""
    precision: bool = False  # whether the model can be converted to float64
    aliases: Sequence[str] = ()

    def load(self) -> Callable[..., Any]:
        module, _, name = self.function.partition(":")
        return getattr(import_module(f"{__package__}.{module}"), name)


VIEWS = [
    View(
        "predictions",
        "predictions:prediction_figure",
        "Show surprisal along a text, the most probable outcomes, and the saliency of each token for one prediction.",
        [
            Option(
                "--at",
                "position",
                int,
                "Position of the prediction to explain, from 0; negative counts from the end.",
                -1,
            ),
            Option("--contrast", "contrast", str, "Two outcomes to compare: was,were.", "none"),
        ],
        edits="compare",
    ),
    View(
        "attention",
        "attention:attention_figure",
        "Show attention weights of any layer and head: maps, entropy, distance; alignments of translations.",
        [
            Option("--layer", "layer", int, "Attention layer, counted from 1.", "the first four"),
            Option("--head", "heads", list[int], "Attention head, counted from 1.", "all"),
            Option("--mark", "marked", list[str], "Token whose share of the attention is reported.", "none"),
        ],
        edits="apply",
    ),
    View(
        "padding",
        "padding:padding_figure",
        "Test whether padding changes the scores of a text, and how much attention falls on padding.",
        [Option("--pads", "pads", list[int], "Number of padding tokens added.", "1 to 32")],
        precision=True,
    ),
    View(
        "timelines",
        "unit_timelines:unit_timeline_figure",
        "Show timelines of single hidden units along a text: their values, and where their gates open and close.",
        [
            Option("--unit", "units", list[int], "Hidden unit, counted from 0.", "those that change most"),
            Option("--layer", "layer", int, "Recurrent layer, counted from 1.", "the first four"),
        ],
        edits="apply",
        aliases=("ribbons",),
    ),
    View(
        "units",
        "units:unit_figure",
        "Measure how long each unit remembers, and find units that track quotes, brackets, lines or subjects.",
        [
            Option("--against", "annotators", list[str], "Property to correlate units with: 'inside quotes'.", "all"),
            Option("--sites", "sites", list[str], "Sites whose units are analysed, by name or pattern.", "states"),
        ],
        reads="file",
    ),
]
