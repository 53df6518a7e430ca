"""Fonts and labels for tokens of any script: a character that no installed font has is shown as its code point."""

from collections.abc import Iterable
from functools import cache

BASE = "DejaVu Sans"  # comes with matplotlib
UNSUITED = ("Last Resort", "cm", "STIXNonUnicode")  # placeholder boxes, and glyphs under other code points
STAND_INS = {" ": "␣", "\n": "↵", "\t": "⇥"}
LONGEST = 16  # characters of a label; longer tokens are truncated


def label(token: str) -> str:
    """A token as a short label, with visible white space."""
    if " " in token.strip():  # not a token but a name of several words
        return drawable(token)
    visible = "".join(STAND_INS.get(char, char) for char in token) or "∅"
    return drawable(visible if len(visible) <= LONGEST else f"{visible[: LONGEST - 1]}…")


def drawable(text: str) -> str:
    """The text, with code points such as [E000] for characters that no installed font has."""
    return "".join(char if font_of(char) else f"[{ord(char):X}]" for char in text)


def families(texts: Iterable[str]) -> list[str]:
    """The fonts that texts need together, the default first."""
    found = {font_of(char) for text in texts for char in text}
    return [BASE, *sorted(found - {"", BASE})]


@cache
def font_of(char: str) -> str:
    """The name of a font with this character; empty where no installed one has it."""
    if not char.isprintable():
        return ""
    return next((name for name, path in _files().items() if ord(char) in _characters(path)), "")


@cache
def _files() -> dict[str, str]:
    """The upright face of each installed font, the default first."""
    from matplotlib.font_manager import fontManager

    fonts = [font for font in fontManager.ttflist if font.style == "normal" and font.weight in (400, "normal")]
    files = {font.name: font.fname for font in fonts if not font.name.startswith(UNSUITED)}
    return dict(sorted(files.items(), key=lambda item: (item[0] != BASE, item[0])))


@cache
def _characters(path: str) -> frozenset[int]:
    """Code points of a font; none of bitmap or broken fonts, which matplotlib cannot draw with."""
    from matplotlib.font_manager import get_font

    try:
        return frozenset(get_font(path).get_charmap())
    except (OSError, RuntimeError, ValueError):
        return frozenset()
