"""Fonts: every label can be drawn with the fonts that it asks for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elman.figures import fonts


@pytest.mark.slow
@given(st.text(max_size=30))
def test_a_label_is_drawable_by_the_fonts_it_names(token: str) -> None:
    """Seen to fail without code points for missing characters."""
    shown = fonts.label(token)
    assert shown
    assert all(fonts.font_of(char) in fonts.families([shown]) for char in shown)
    assert "\n" not in shown


def test_a_character_of_another_font_adds_that_font(monkeypatch: pytest.MonkeyPatch) -> None:
    table = {fonts.BASE: {ord("a")}, "Other": {ord("a"), ord("b")}}
    monkeypatch.setattr(fonts, "_files", lambda: {name: name for name in table})
    monkeypatch.setattr(fonts, "_characters", table.get)
    fonts.font_of.cache_clear()
    try:
        assert fonts.families(["a"]) == [fonts.BASE]
        assert fonts.families(["ab"]) == [fonts.BASE, "Other"]
        assert fonts.label("abc") == "ab[63]"
    finally:
        fonts.font_of.cache_clear()
