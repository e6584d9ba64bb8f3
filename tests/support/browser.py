"""Chromium, without a screen, looking at pages: what they ask for, say, spill over, and keep from people.

Nothing here is imported by the default run: playwright, axe-core and a browser belong to ``tests/browser.sh``.
"""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from playwright.sync_api import sync_playwright

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Locator, Page

Scheme = Literal["light", "dark"]
WIDTHS = (390, 1200)  # pixels: a telephone, a desk
SCHEMES: tuple[Scheme, ...] = ("light", "dark")
VIEWS = [(width, scheme) for width in WIDTHS for scheme in SCHEMES]
HEIGHT = 900
QUIET = (  # a closed network is not asked for anything
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
SERIOUS = {"serious", "critical"}
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
OVERFLOW = """() => {
  const wide = document.documentElement.clientWidth, found = [];
  for (const one of document.querySelectorAll('body, body *')) {
    let inside = false;
    for (let up = one.parentElement; up; up = up.parentElement)
      inside = inside || ['auto', 'scroll', 'hidden'].includes(getComputedStyle(up).overflowX) || up.tagName == 'svg';
    if (!inside && one.getBoundingClientRect().right > wide + 1)
      found.push(one.tagName + '.' + (one.getAttribute('class') || '') + ' ' + (one.textContent || '').slice(0, 60));
  }
  if (document.documentElement.scrollWidth > wide) found.push('page: ' + document.documentElement.scrollWidth);
  return found;
}"""


@dataclass
class Seen:
    """An open page, and what it did so far: ``requests`` beyond the page itself, ``messages`` to the console."""

    page: Page
    requests: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)

    def turn(self, width: int, scheme: Scheme) -> None:
        """Show the page in a window of a width and a scheme, and wait for its pictures."""
        self.page.set_viewport_size({"width": width, "height": HEIGHT})
        self.page.emulate_media(color_scheme=scheme)
        self.page.wait_for_function("[...document.images].every(one => one.complete && one.naturalWidth > 0)")

    def strange_requests(self) -> list[str]:
        """What was asked of anything but the page's own server; of a file nothing more may be asked."""
        server = self.page.url.split("/", 3)[:3]
        return [one for one in self.requests if server[0] == "file:" or one.split("/", 3)[:3] != server]

    def overflow(self) -> list[str]:
        """What stands beyond the right edge of the window, but for what scrolls in a box of its own."""
        return list(self.page.evaluate(OVERFLOW))

    def findings(self) -> list[str]:
        """Serious and critical findings of axe-core, a line each. The page must have been opened with ``axe``."""
        from axe_playwright_python.sync_playwright import Axe

        found = Axe().run(self.page).response["violations"]
        return [
            f"{one['id']} ({one['impact']}): {node['target']} {node['html'][:200]}"
            for one in found
            if one["impact"] in SERIOUS
            for node in one["nodes"]
        ]

    def shot(self, to: Path) -> Path:
        """A picture of the whole page."""
        self.page.screenshot(path=str(to), full_page=True)
        return to


@contextmanager
def browser() -> Iterator[Browser]:
    """One Chromium."""
    with sync_playwright() as play:
        made = play.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        try:
            yield made
        finally:
            made.close()


@contextmanager
def opened(made: Browser, address: str, width: int = 1200, scheme: Scheme = "light", **more: Any) -> Iterator[Seen]:
    """An address (``path.as_uri()`` for a file) in a window of a width and a scheme, with a context of its own.

    ``axe=True``: its policy does not bind the test's own script, which axe-core is. Other keywords are playwright's.
    """
    axe = more.pop("axe", False)
    size: Any = {"width": width, "height": HEIGHT}
    context = made.new_context(viewport=size, color_scheme=scheme, bypass_csp=axe, **more)
    try:
        page = context.new_page()
        seen = Seen(page)
        page.on("request", lambda asked: seen.requests.append(asked.url))
        page.on("console", lambda said: seen.messages.append(f"{said.type}: {said.text}"))
        page.on("pageerror", lambda error: seen.messages.append(f"error: {error}"))
        page.goto(address)
        seen.requests = [one for one in seen.requests if one != page.url]
        yield seen
    finally:
        context.close()


def followed(what: Locator) -> None:
    """Click what leads to a page, and wait until that has loaded whole: a click returns before its page is there."""
    with what.page.expect_navigation(wait_until="load"):
        what.click()


def looked_at(made: Browser, address: str, folder: Path, **more: Any) -> list[str]:
    """What is wrong with a page at every width and scheme; leaves a picture of each in which something is.

    axe-core looks at every width, and at every scheme, but not at all pairs: colours do not depend on the width.
    """
    wrong = []
    with opened(made, address, **more) as seen:
        for view in VIEWS:
            seen.turn(*view)
            if found := [*seen.strange_requests(), *seen.messages, *seen.overflow()]:
                seen.shot(folder / f"{view[0]}-{view[1]}.png")
            wrong += [f"{view}: {one}" for one in found]
    with opened(made, address, axe=True, **more) as seen:
        for view in zip(WIDTHS, SCHEMES, strict=True):
            seen.turn(*view)
            wrong += [f"{view}: {one}" for one in seen.findings()]
    return wrong
