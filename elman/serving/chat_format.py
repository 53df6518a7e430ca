"""How messages of a chat become one text: a transcript, or a format from a file. Formats are plain substitution."""

from collections.abc import Iterable
from pathlib import Path

from pydantic import Field

from elman.config import Config
from elman.errors import ConfigError, DataError, first_line
from elman.plain_yaml import parse_yaml
from elman.untrusted import read_bytes

PLACE = "{content}"
LARGEST = 100_000  # bytes of a file


class ChatFormat(Config):
    """A transcript, as in a play. `{content}` stands for what a message says."""

    system: str = "{content}\n\n"
    user: str = "User: {content}\n"
    assistant: str = "Assistant: {content}\n"
    prompt: str = "Assistant:"
    """What comes before the answer."""
    stop: list[str] = Field(default_factory=lambda: ["\nUser:", "\nAssistant:"])
    """Strings that end an answer."""
    strip: bool = True
    """Leave out white space around an answer."""

    def text(self, messages: Iterable[tuple[str, str]]) -> str:
        """One text of (role, content)."""
        return "".join(getattr(self, role).replace(PLACE, content) for role, content in messages) + self.prompt

    def following(self, messages: Iterable[tuple[str, str]]) -> str:
        """The same after an answer that is part of the text already."""
        end = self.assistant.rpartition(PLACE)[2]
        return end + self.text(messages)


def read_chat_format(path: Path | None) -> ChatFormat:
    """The format of a YAML file; without one a transcript."""
    if path is None:
        return ChatFormat()
    try:
        made = ChatFormat.make(parse_yaml(read_bytes(path, LARGEST).decode()), where=str(path))
    except UnicodeDecodeError as error:
        raise DataError(first_line(error), file=path) from None
    for role in ("system", "user", "assistant"):
        if PLACE not in getattr(made, role):
            raise ConfigError(f"{path}: {role} has no {PLACE}, so that messages would be left out")
    return made
