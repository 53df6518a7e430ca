"""Tokens of any script as labels of pictures: fonts that have their signs, numbers for signs that none has."""

from collections.abc import Iterable
from functools import cache

BASE = "DejaVu Sans"  # comes with matplotlib
UNFIT = ("Last Resort", "cm", "STIXNonUnicode")  # a box for every sign, or signs under the numbers of others
STAND_INS = {" ": "␣", "\n": "↵", "\t": "⇥"}
LONGEST = 16  # characters of a label; longer tokens are cut


def label(token: str) -> str:
    """A token as it can be drawn, blanks visible, never too long."""
    if " " in token.strip():  # no token but a name of several words
        return drawable(token)
    signs = "".join(STAND_INS.get(sign, sign) for sign in token) or "∅"
    return drawable(signs if len(signs) <= LONGEST else f"{signs[: LONGEST - 1]}…")


def drawable(text: str) -> str:
    """The text with signs that no installed font has written as their number."""
    return "".join(sign if font_of(sign) else f"[{ord(sign):X}]" for sign in text)


def families(texts: Iterable[str]) -> list[str]:
    """The fonts that texts need together, the usual one first."""
    found = {font_of(sign) for text in texts for sign in text}
    return [BASE, *sorted(found - {"", BASE})]


@cache
def font_of(sign: str) -> str:
    """The name of a font that has a sign; empty where no installed one has."""
    if not sign.isprintable():
        return ""
    return next((name for name, path in _files().items() if ord(sign) in _signs(path)), "")


@cache
def _files() -> dict[str, str]:
    """The upright form of each installed font, the usual one first."""
    from matplotlib.font_manager import fontManager

    fonts = [font for font in fontManager.ttflist if font.style == "normal" and font.weight in (400, "normal")]
    files = {font.name: font.fname for font in fonts if not font.name.startswith(UNFIT)}
    return dict(sorted(files.items(), key=lambda item: (item[0] != BASE, item[0])))


@cache
def _signs(path: str) -> frozenset[int]:
    """What a font has; nothing if it is one of bitmaps, or broken, and cannot be drawn with."""
    from matplotlib.font_manager import get_font

    try:
        return frozenset(get_font(path).get_charmap())
    except (OSError, RuntimeError, ValueError):
        return frozenset()
