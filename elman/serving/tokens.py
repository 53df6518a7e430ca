"""Tokens that clients show as `Authorization: Bearer …`: read from a file, or made for one start of the server."""

import hashlib
import hmac
import os
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import IO, NamedTuple

from elman.errors import ConfigError, DataError
from elman.files import make_folder, unlinked

BITS = 256  # of a token that is made here
SHORTEST = 16  # characters of a token of one's own
LARGEST = 1_000_000  # bytes of a token file


class Token(NamedTuple):
    owner: str
    """Who uses it: a name, or the start of its hash."""
    secret: bytes


class Tokens:
    """All tokens that are accepted; with none of them nobody is."""

    def __init__(self, tokens: Iterable[Token]):
        self._tokens = list(tokens)

    def owner(self, given: bytes) -> str | None:
        """Whose token it is. Every token is compared, in constant time, so that the time taken tells nothing."""
        found = None
        for token in self._tokens:
            if hmac.compare_digest(token.secret, given):
                found = token.owner
        return found


def new_token() -> str:
    return secrets.token_urlsafe(BITS // 8)


def token_of(text: str, place: str = "a token") -> Token:
    """Of `token` or `name:token`."""
    name, _, secret = text.rpartition(":")
    if len(secret) < SHORTEST or not secret.isascii() or not secret.isprintable() or " " in secret:
        raise ConfigError(
            f"{place}: a token has {SHORTEST} or more printable ASCII characters without spaces, as token or name:token"
        )
    return Token(name.strip() or hashlib.sha256(secret.encode()).hexdigest()[:12], secret.encode())


def read_tokens(path: Path) -> Tokens:
    """The tokens of a file that nobody else can read, one per line; empty lines and lines with # are skipped."""
    with _opened(path) as file:
        if os.name != "nt" and os.fstat(file.fileno()).st_mode & 0o077:
            raise DataError("other users can read the tokens", file=path, remedy=f"chmod 600 {path}")
        text = file.read(LARGEST).decode("utf-8", "replace")
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), start=1)]
    found = [token_of(line, f"{path}, line {number}") for number, line in lines if line and not line.startswith("#")]
    if not found:
        raise DataError("has no token", file=path, remedy="write one per line, or delete the file to get a new one")
    return Tokens(found)


def _opened(path: Path) -> IO[bytes]:
    try:
        return open(path, "rb", opener=lambda name, flags: unlinked(name, flags | getattr(os, "O_NONBLOCK", 0)))
    except OSError as error:
        raise DataError(f"cannot read the tokens: {error.strerror}", file=path) from None


def write_token(path: Path, token: str) -> None:
    """A new file that only its owner can read."""
    make_folder(path.absolute().parent)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise DataError(f"cannot write the token: {error.strerror}", file=path) from None
    with open(descriptor, "w", encoding="ascii") as file:
        file.write(f"{token}\n")
