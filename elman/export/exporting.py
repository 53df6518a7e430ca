"""Exports a trained run to the format of another tool: a folder, or one file."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

from elman.errors import RunError, UnknownName
from elman.export.base import Export, Weights, write_folder
from elman.pipeline.trained_model import load

FORMAT = "hugging-face"
FORMATS = {  # by name, or another name of it: the module and its function
    "c": ("c", "c_library"),
    "binary": ("binary", "write_binary"),
    "hugging-face": ("hugging_face", "hugging_face"),
    "hf": ("hugging_face", "hugging_face"),
    "torch": ("torch_module", "torch_module"),
    "arpa": ("arpa", "write_arpa_file"),
}
FILES = ("arpa", "binary")  # formats of one file


def export_run(run: str | Path, to: str | Path, format: str = FORMAT, weights: Any = "fp32") -> list[str]:
    """Write a run's model and tokenizer; returns notes for the user. A folder that is not empty is refused, and an
    export that does not agree with the run is not written."""
    if format not in FORMATS:
        raise UnknownName("format", format, FORMATS)
    if weights not in get_args(Weights):
        raise UnknownName("kind of weights", weights, get_args(Weights))
    target = Path(to)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise RunError(f"{target}: is there already; give another --to")
    trained = load(run, "cpu")
    module, name = FORMATS[format]
    function: Callable[..., Any] = getattr(import_module(f"elman.export.{module}"), name)
    if format in FILES:
        return function(trained, weights, target)
    export: Export = function(trained, weights)
    return write_folder(export, target)
