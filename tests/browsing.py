"""A page of HTML as a reader meets it: in a real browser, from the disk, without a network."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
PHONE, DESKTOP, PAPER = 390, 1280, 718  # pixels across; the last is A4 between its margins
MISSING = "no browser: install Debian's chromium (make browser), or name another in ELMAN_BROWSER"


@contextmanager
def browser(*arguments: str) -> Iterator[object]:
    """Chromium of this machine, driven by playwright; a test is skipped where either is missing. Further arguments
    are those of chromium."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install 'elman[browser]'")
    path = os.environ.get("ELMAN_BROWSER") or next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip(MISSING)
    with api.sync_playwright() as driver:
        # A container's only user is root, for whom the sandbox cannot start; the pages are our own.
        found = driver.chromium.launch(executable_path=path, args=["--no-sandbox", *arguments])
        yield found
        found.close()


class Visit:
    """One look at a page, with what it asked for and what it complained of."""

    def __init__(self, browser: object, path: Path, width: int = DESKTOP, media: str = "screen"):
        self.context = browser.new_context(viewport={"width": width, "height": 900})
        self.page = self.context.new_page()
        self.asked, self.complaints = [], []
        own = path.absolute().as_uri()

        def route(route: object) -> None:
            if route.request.url == own:
                route.continue_()
            else:
                self.asked.append(route.request.url)
                route.abort()

        # What is written inside the page (data:) is no request, and no route is asked for it.
        self.context.route("**/*", route)
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.emulate_media(media=media)
        self.page.goto(own)

    def __enter__(self) -> "Visit":
        return self

    def __exit__(self, *error: object) -> None:
        self.context.close()

    def violations(self) -> list[str]:
        """What axe finds wrong, each with its first place; details are opened first, for they are read too."""
        axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed")
        self.page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
        found = axe.Axe().run(self.page).response["violations"]
        return [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in found]

    def across(self) -> int:
        """Pixels that the page is wider than the window."""
        return self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")

    def cut(self) -> list[str]:
        """Parts whose content is wider than they are, or that stick out of the window."""
        return self.page.evaluate(CUT)

    def overlapping(self) -> list[str]:
        """Pairs of texts, in drawings too, that lie on each other."""
        return self.page.evaluate(OVERLAPPING)

    def faint(self) -> list[str]:
        """Texts of drawings, which axe does not look at, with less contrast to white than 4.5 to 1."""
        return self.page.evaluate(FAINT)

    def painted(self, selector: str) -> list[int]:
        """Pixels of each such part that have a colour: letters and axes are grey."""
        from io import BytesIO

        import numpy as np
        from PIL import Image

        shots = [one.screenshot() for one in self.page.locator(selector).all()]
        values = [np.asarray(Image.open(BytesIO(shot)).convert("RGB")).astype(int) for shot in shots]
        return [int((one.max(-1) - one.min(-1) > 60).sum()) for one in values]


CUT = """() => [...document.querySelectorAll('main *')].filter(one => {
    const box = one.getBoundingClientRect(), style = getComputedStyle(one)
    if (!box.width || style.clipPath !== 'none' || one.closest('svg, thead')) return false
    const inner = one.scrollWidth > one.clientWidth + 1 && style.display !== 'inline' && one.clientWidth > 0
    return inner || box.right > document.documentElement.clientWidth + 1 || box.left < -1
}).map(one => one.outerHTML.slice(0, 120))"""

OVERLAPPING = """() => {
    const boxes = []
    const walker = document.createTreeWalker(document.querySelector('main'), NodeFilter.SHOW_TEXT)
    while (walker.nextNode()) {
        const node = walker.currentNode, own = getComputedStyle(node.parentElement)
        if (!node.data.trim() || own.visibility === 'hidden') continue
        if (node.parentElement.closest('style, title, thead')) continue
        const range = document.createRange()
        range.selectNodeContents(node)
        for (const box of range.getClientRects()) if (box.width) boxes.push([box, node.data.trim()])
    }
    const found = []
    boxes.forEach(([one, words], place) => boxes.slice(place + 1).forEach(([other, more]) => {
        const wide = Math.min(one.right, other.right) - Math.max(one.left, other.left)
        const high = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top)
        // Lines stand so close that boxes of letters touch: a third of their height is a collision.
        if (wide > 2 && high > Math.min(one.height, other.height) / 3) found.push(`${words} | ${more}`)
    }))
    return found
}"""

FAINT = """() => {
    const part = value => (value /= 255) <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4
    return [...document.querySelectorAll('svg text')].filter(one => {
        const [r, g, b] = getComputedStyle(one).fill.match(/[\\d.]+/g).map(Number)
        return 1.05 / (0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b) + 0.05) < 4.5
    }).map(one => one.textContent)
}"""
