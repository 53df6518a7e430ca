"""The named options of a recipe (--data, --model, --size, ...), declared once for every verb that builds one."""

import inspect
from collections.abc import Callable, Collection, Mapping
from functools import wraps
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import typer

from elman.cli import options

RECIPE_FILE = typer.Argument(
    None, metavar="RECIPE", help="Recipe: a YAML file of settings.", show_default="every setting has its default"
)


class RecipeOption(NamedTuple):
    type: Any
    """Of the value; None where the option was not given."""
    setting: str | None
    """The recipe setting that it gives a value to; None where `RecipeOptions.settings` derives settings from it."""
    option: Any
    """As typer declares it: help and default."""


def _option(kind: Any, setting: str | None, *names: str, help: str, default: str) -> RecipeOption:
    return RecipeOption(kind | None, setting, options.option(*names, help=help, default=default))


# By parameter name: `start_from` is --start-from. The order is that of --help.
RECIPE_OPTIONS = {
    "task": _option(
        str, "task", help="Task to train for: `elman list` names all.", default="the recipe's, else language modelling"
    ),
    "data": _option(list[str], "data.train", help=f"Training data: {options.SOURCES}", default="a synthetic language"),
    "valid": _option(
        list[str],
        "data.valid",
        help="Validation data, in the same forms.",
        default="a tenth of the training data, held out",
    ),
    "test": _option(list[str], "data.test", help="Test data, in the same forms.", default="none"),
    "target": RecipeOption(list[str] | None, "data.train_target", options.TARGET),
    "valid_target": _option(
        list[str], "data.valid_target", help="Translation: the targets of --valid.", default="a column of --valid"
    ),
    "test_target": _option(
        list[str], "data.test_target", help="Translation: the targets of --test.", default="a column of --test"
    ),
    "columns": _option(str, None, help=options.COLUMNS, default="by their names"),
    "model": _option(
        str,
        "model",
        help="Model or layer by name, also with settings: gru, lstm:forget_bias=3; `elman list` names all.",
        default="lstm",
    ),
    "tokenizer": _option(
        str, "tokenizer", help="byte, character, word or bpe.", default="character; word for a synthetic language"
    ),
    "start_from": _option(
        str,
        "start_from",
        help="Run folder of a pretrained model: a language model or masked model to classify or tag with, a translator "
        "to translate with.",
        default="random weights",
    ),
    "size": _option(
        str,
        None,
        help="Width, depth and dropout together: tiny (64 units), small (256), medium (512) or large (1024).",
        default="one layer of 256 units",
    ),
    "params": _option(
        str,
        "parameters",
        "--params",
        "--parameters",
        help="Number of parameters; the width is chosen to come close: 250k, 5M.",
        default="any",
    ),
    "seed": _option(int, "seed", help="Random seed: the same seed repeats the run exactly.", default="1"),
    "module": RecipeOption(list[Path] | None, None, options.MODULE),
    "device": RecipeOption(str | None, "device", options.DEVICE),
}


class RecipeOptions:
    """The values of a verb's recipe options, None where an option was not given."""

    def __init__(self, values: dict[str, Any]):
        self.values = values

    def __getitem__(self, name: str) -> Any:
        return self.values.get(name)

    @property
    def modules(self) -> list[Path]:
        return self["module"] or []

    def settings(self, task: str | None = None) -> dict[str, Any]:
        """Recipe settings by dotted name, of the options that were given; `task` decides what --columns means."""
        named = {option.setting: self[name] for name, option in RECIPE_OPTIONS.items() if option.setting}
        settings: dict[str, Any] = {key: value for key, value in named.items() if value is not None}
        if self["data"] is not None:
            settings = {"data.language": None, **settings}
        if self["columns"]:
            from elman.pipeline.recipe import columns_of

            settings |= columns_of(self["columns"], task)
        return settings

    def build_recipe(
        self,
        source: str | Path | Mapping[str, Any] | None,
        dotted: list[str],
        kept: Mapping[str, Any] = MappingProxyType({}),
    ) -> Any:
        """The recipe of a file, or of plain settings; over it named options, then --size, then dotted settings. `kept`
        are those of a run to resume that the recipe need not name."""
        from elman.config import parse_overrides
        from elman.pipeline.recipe import read_recipe
        from elman.pipeline.sizes import size_overrides
        from elman.untrusted import read_yaml

        stored = source if isinstance(source, Mapping) else read_yaml(source) if source else {}
        task = self["task"] or stored.get("task")
        self.check_targets(task)
        settings = self.settings(task)
        if self["size"]:
            settings |= size_overrides(self["size"], self["model"] or stored.get("model"), task)
        settings |= parse_overrides(dotted)
        return read_recipe(source, settings | {key: value for key, value in kept.items() if key not in settings})

    def check_targets(self, task: str | None) -> None:
        """Target files belong to translation only."""
        if any(self[name] for name in ("target", "valid_target", "test_target")):
            from elman.pipeline.recipe import DEFAULT, check_targets

            check_targets(task or DEFAULT)


def takes_recipe_options(*, without: Collection[str] = ()) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Adds the options to a verb, in place of its parameter of type RecipeOptions, which then holds their values."""
    names = [name for name in RECIPE_OPTIONS if name not in without]

    def add(verb: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(verb, eval_str=True).parameters
        [place] = [name for name, parameter in own.items() if parameter.annotation is RecipeOptions]

        @wraps(verb)
        def run(**values: Any) -> None:
            chosen = RecipeOptions({name: values.pop(name) for name in names})
            verb(**values, **{place: chosen})

        parameters: list[inspect.Parameter] = []
        for name, parameter in own.items():
            if name == place:
                parameters += [
                    options.keyword(one, RECIPE_OPTIONS[one].type, RECIPE_OPTIONS[one].option) for one in names
                ]
            else:
                parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
        options.set_parameters(run, parameters)
        return run

    return add
