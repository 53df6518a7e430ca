"""Reads YAML as plain values: text, numbers, true, false, null, lists, and mappings with text as keys.

What else YAML has, no recipe needs and a hostile file uses: tags that make other objects, aliases that multiply a text,
cycles. Dates and numbers with colons (1:30 is 90 in YAML 1.1) are text here, as in YAML 1.2.
"""

import re
from collections.abc import Iterator
from typing import Any

import yaml
from yaml.constructor import SafeConstructor
from yaml.events import AliasEvent, Event, MappingEndEvent, ScalarEvent, SequenceEndEvent, SequenceStartEvent
from yaml.nodes import ScalarNode

from elman.errors import ConfigError

MAX_DEPTH = 40  # lists and mappings inside each other
MAX_DIGITS = 100
SURROGATE = re.compile(r"\\(u|U0000)[dD][89a-fA-F]")  # escapes of file names that are not UTF-8; libyaml rejects them
TEXT = {"tag:yaml.org,2002:str", "!"}
_number = SafeConstructor()
_resolver = yaml.resolver.Resolver()
_CONSTRUCTORS = {
    "tag:yaml.org,2002:null": _number.construct_yaml_null,
    "tag:yaml.org,2002:bool": _number.construct_yaml_bool,
    "tag:yaml.org,2002:int": _number.construct_yaml_int,
    "tag:yaml.org,2002:float": _number.construct_yaml_float,
}


def parse_yaml(text: str, at_most: int = 1_000_000) -> Any:
    """The value of a text; a ConfigError says in one line what is wrong. `at_most` limits its size with all aliases
    replaced by what they stand for."""
    try:
        parser = yaml.SafeLoader if SURROGATE.search(text) else getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        events = yaml.parse(text, parser)
        next(events)  # start of the stream
        return _Reader(events, at_most).document()
    except (yaml.YAMLError, ValueError) as problem:
        raise ConfigError(f"not valid YAML: {' '.join(str(problem).split())[:300]}") from None


class _Reader:
    def __init__(self, events: Iterator[Event], at_most: int):
        self.events = events
        self.room = at_most
        self.anchors: dict[str, tuple[Any, int]] = {}  # values with their sizes

    def document(self) -> Any:
        if isinstance(next(self.events), yaml.StreamEndEvent):
            return None
        value = self.value(next(self.events), 0)
        next(self.events)  # end of the document
        if not isinstance(next(self.events), yaml.StreamEndEvent):
            raise ConfigError("a second document, after `---`, where one is read")
        return value

    def value(self, event: Any, depth: int) -> Any:
        """The value that begins with an event."""
        before = self.room
        if isinstance(event, AliasEvent):
            if event.anchor not in self.anchors:
                raise _problem(event, f"*{event.anchor} stands for nothing that is complete before it")
            value, size = self.anchors[event.anchor]
            self.take(size, event)
            return value
        if depth > MAX_DEPTH:
            raise _problem(event, f"more than {MAX_DEPTH} lists and mappings inside each other")
        if event.tag not in (None, *TEXT):
            raise _problem(event, f"the tag {event.tag[:80]!r} is not read: write the plain value")
        if isinstance(event, ScalarEvent):
            self.take(1 + len(event.value), event)
            value = _scalar(event)
        elif isinstance(event, SequenceStartEvent):
            self.take(1, event)
            value = [self.value(inner, depth + 1) for inner in self.until(SequenceEndEvent)]
        else:
            self.take(1, event)
            value = self.mapping(depth)
        if event.anchor:
            self.anchors[event.anchor] = value, before - self.room
        return value

    def mapping(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key in self.until(MappingEndEvent):
            if not isinstance(key, ScalarEvent):
                raise _problem(key, "a key is a plain text")
            self.take(1 + len(key.value), key)
            value = self.value(next(self.events), depth + 1)
            if key.value == "<<" and key.implicit[0]:
                for part in value if isinstance(value, list) else [value]:
                    if not isinstance(part, dict):
                        raise _problem(key, "<< merges mappings only")
                    merged = {**part, **merged}
            elif key.value in found:
                raise _problem(key, f"the key {key.value[:80]!r} is here a second time")
            else:
                found[key.value] = value
        return {**merged, **found}

    def until(self, end: type[Event]) -> Iterator[Event]:
        while not isinstance(event := next(self.events), end):
            yield event

    def take(self, size: int, event: Any) -> None:
        self.room -= size
        if self.room < 0:
            raise _problem(event, "too long, counting what its aliases stand for")


def _scalar(event: ScalarEvent) -> Any:
    tag = _resolver.resolve(ScalarNode, event.value, event.implicit) if event.tag is None else ""
    construct = _CONSTRUCTORS.get(tag)
    if construct is None or (":" in event.value and not tag.endswith("null")):
        return event.value
    if len(event.value) > MAX_DIGITS:
        raise _problem(event, f"a number of {len(event.value)} digits")
    return construct(ScalarNode(tag, event.value))


def _problem(event: Any, reason: str) -> ConfigError:
    return ConfigError(f"line {event.start_mark.line + 1}: {reason}")
