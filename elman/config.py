"""Typed settings: immutable, unknown keys rejected, read from YAML, overridden with dotted keys."""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import pairwise
from textwrap import dedent
from typing import Annotated, Any, Literal, Self, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model, model_validator
from pydantic.fields import FieldInfo

from elman.errors import ConfigError, brief, nearest
from elman.plain_yaml import parse_yaml

COMMA = re.compile(r",(?![^\[{]*[\]}])")  # not inside of brackets
Count = Annotated[int, Field(ge=0, lt=2**63)]
PUNCTUATION = re.compile(r"[-\s,;:|/\\#&*!%@`^+=<>?.$_]+")  # not brackets, quotes and ~, which are YAML syntax


class Config(BaseModel):
    """Base class of all settings. A field's docstring is its help text and its comment in a recipe."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=())

    @classmethod
    def described_fields(cls) -> Mapping[str, FieldInfo]:
        """The fields with their help texts; read on request, since reading them takes as long as all other imports."""
        texts: dict[str, str] = {}
        for base in reversed(cls.__mro__):
            texts |= attribute_docstrings(base) if issubclass(base, Config) else {}
        for name, field in cls.model_fields.items():
            field.description = field.description or texts.get(name)
        return cls.model_fields

    @model_validator(mode="after")
    def within_limits(self) -> Self:
        """Rejects numbers that no machine can serve, before anything is built."""
        from elman.limits import check_setting

        for name, value in self:
            check_setting(name, value)
        return self

    @classmethod
    def make(cls, settings: Mapping[str, Any] | None = None, where: str = "") -> Self:
        """Validates plain settings; `where` is the dotted path of this section, for error messages."""
        try:
            return cls.model_validate(dict(settings or {}))
        except ValidationError as error:
            raise ConfigError("\n".join(_explain(cls, problem, where) for problem in error.errors())) from None

    def plain(self) -> dict[str, Any]:
        """The settings as plain YAML types."""
        return self.model_dump(mode="json", serialize_as_any=True)


class Facts(Config):
    """What elman has counted itself, and wrote to a file: without the limits of settings."""

    @model_validator(mode="after")
    def within_limits(self) -> Self:
        return self


def first_problem(error: ValidationError) -> str:
    """The first problem, in a line."""
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"]))
    return f"{where}: {first['msg']}" if where else first["msg"]


@cache
def typed(name: str, config: type[Config]) -> type[Config]:
    """The settings with the `type` that selected them, so that a written recipe can be read again."""
    if "type" in config.model_fields:
        return config
    field: Any = (Literal[name], name)
    return create_model(f"{config.__qualname__}[{name}]", __base__=config, type=field)


def named(known: Any, given: Any, where: str = "") -> tuple[str, Config]:
    """Name and settings of `lstm`, `{lstm: {...}}` or `{type: lstm, ...}`, looked up in a registry."""
    if isinstance(given, str):
        given = with_type(given)
    if isinstance(given, Mapping) and isinstance(given.get("type"), str):
        given = {given["type"]: {key: value for key, value in given.items() if key != "type"}}
    if isinstance(given, Mapping) and len(given) == 1:
        ((name, settings),) = given.items()
        if isinstance(name, str) and isinstance(settings, Mapping | None):
            return name, known[name].Config.make(settings, where=f"{where or known.kind}.{name}")
    raise ConfigError(
        f"{where or known.kind}: a {known.kind} is a name, or one name with its settings: "
        f"{{lstm: {{hidden_size: 64}}}}, but got {brief(given)}"
    )


def name_and_settings(text: str) -> tuple[str, dict[str, str]]:
    """The name and the settings of `lstm:forget_bias=3,hidden_size=64`."""
    name, _, rest = text.partition(":")
    settings = {}
    for part in filter(None, COMMA.split(rest)):
        key, equals, value = part.partition("=")
        if not equals:
            raise ConfigError(f"{text!r}: settings follow a name as lstm:forget_bias=3,hidden_size=32")
        settings[key.strip()] = value
    return name.strip(), settings


def with_type(given: str | Mapping[str, Any]) -> dict[str, Any]:
    """`lstm`, `lstm:forget_bias=3` or `{type: lstm, forget_bias: 3}` as the last of these."""
    settings = {"type": given} if isinstance(given, str) else dict(given)
    if isinstance(settings.get("type"), str) and ":" in settings["type"]:
        name, own = name_and_settings(settings["type"])
        settings = {**override({}, own), **settings, "type": name}
    return settings


def override(settings: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of `settings` with dotted keys set: `{"training.learning_rate": 3e-4}`. Values may be YAML text; pure
    punctuation is taken literally, because much of it has a meaning in YAML."""
    result: dict[str, Any] = json.loads(json.dumps(settings))
    for dotted, value in overrides.items():
        *sections, key = dotted.split(".")
        inner = result
        for section in sections:
            if isinstance(inner.get(section), str):
                inner[section] = with_type(inner[section])  # expand `model: lstm` before setting `model.dropout`
            inner = inner.setdefault(section, {})
            if not isinstance(inner, dict):
                raise ConfigError(f"{dotted}: {section!r} is a value, not a section")
        plain = not isinstance(value, str) or PUNCTUATION.fullmatch(value)
        try:
            inner[key] = value if plain else parse_yaml(value)
        except ConfigError as error:
            raise ConfigError(f"{dotted}: {brief(value)}: {error}") from None
    return result


def parse_overrides(words: Iterable[str]) -> dict[str, str]:
    """Parses `--a.b 1`, `--a.b=1` and `a.b=1` from a command line."""
    overrides: dict[str, str] = {}
    words = iter(words)
    for word in words:
        key, equals, value = word.removeprefix("--").partition("=")
        key = key.replace("-", "_")
        if not equals:
            if not word.startswith("--"):
                raise ConfigError(f"{word!r} is not an option; settings are written as --section.key value")
            try:
                value = next(words)
            except StopIteration:
                raise ConfigError(f"--{key} needs a value") from None
        overrides[key] = value
    return overrides


@cache
def attribute_docstrings(owner: type) -> dict[str, str]:
    """The texts below the attributes in the body of a class; none where its source is not at hand."""
    try:
        (tree,) = ast.parse(dedent(inspect.getsource(owner))).body
    except (OSError, TypeError):  # made by `create_model`
        return {}
    found = {}
    for entry, after in pairwise(getattr(tree, "body", [])):
        match entry, after:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = inspect.cleandoc(text)
    return found


def commented_yaml(config: Config) -> str:
    """The configuration as YAML, with help texts as comments."""
    return "\n".join(_commented(config, "")) + "\n"


def _commented(config: Config, indent: str) -> Iterator[str]:
    fields = type(config).described_fields()
    for name, field in sorted(fields.items(), key=lambda item: item[0] != "type"):
        value = getattr(config, name)
        if indent == "":
            yield ""
        for line in (field.description or "").splitlines():
            yield f"{indent}# {line.strip()}".rstrip()
        if isinstance(value, Config):
            yield f"{indent}{name}:"
            yield from _commented(value, indent + "  ")
        else:
            yield f"{indent}{name}: {_flow(config.plain()[name])}"


def _flow(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=True, width=10**6).removesuffix("...\n").strip()


def unknown_key(key: str, section: str, known: Iterable[str]) -> str:
    """The error message for an unknown key."""
    inside = f" in section {section!r}" if section else ""
    return f"unknown key {key!r}{inside}{nearest(key, known)}; known: {', '.join(sorted(known))}"


def _explain(cls: type[Config], problem: Any, where: str) -> str:
    path = [str(part) for part in problem["loc"]]
    place = ".".join([*where.split("."), *path]).strip(".")
    if problem["type"] == "extra_forbidden":
        known = _fields_at(cls, path[:-1])
        return unknown_key(path[-1], place.rpartition(".")[0], known)
    if problem["type"] == "missing":
        return f"{place}: is required"
    message = problem["msg"].removeprefix("Value error, ")
    given = "" if isinstance(problem["input"], Mapping) else f", but got {brief(problem['input'])}"
    return f"{place}: {message[:1].lower()}{message[1:]}{given}" if place else message


def _fields_at(cls: type[Config], path: list[str]) -> list[str]:
    for key in path:
        if key not in cls.model_fields:
            break
        annotation = cls.model_fields[key].annotation
        types = [part for part in (annotation, *get_args(annotation)) if isinstance(part, type)]
        inner = [part for part in types if issubclass(part, Config)]
        if not inner:
            break
        cls = inner[0]
    return list(cls.model_fields)
