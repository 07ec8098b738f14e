"""Headless Chromium for the tests of the dashboard: tabs that record every problem, and checks with axe-core.

Debian's Chromium is driven by Playwright, whose own browsers are not needed. Without Chromium the tests are skipped;
in continuous integration they fail, so that nobody takes a skipped test for one that passed.
"""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, ViewportSize, expect, sync_playwright

AXE: Final = (Path(__file__).parent / "vendor" / "axe.min.js").read_text()
STANDARDS: Final = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
APPEARANCE: Final = ("color-contrast", "target-size", "scrollable-region-focusable", "link-in-text-block")
"""The rules that depend on the colours and the size of the screen."""

MORE_ROWS: Final = "tbody tr:nth-child(n+6)"
"""Rows of long tables that axe-core leaves out, because each costs milliseconds and all are alike."""

PROGRAMS: Final = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""The first one takes half of the processor time."""

ARGUMENTS: Final = (
    "--no-sandbox",  # containers permit none
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
WAIT_MAX_MS: Final = 20_000
"""How long a page may take until it shows what a test expects, on a machine that is busy otherwise."""

WIDE: Final[ViewportSize] = {"width": 1280, "height": 800}
NARROW: Final[ViewportSize] = {"width": 360, "height": 740}


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start Chromium with a new and empty profile; skip the test if it is not installed, except in CI."""
    path = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if path is None:
        if os.environ.get("CI"):
            pytest.fail(f"Chromium is not installed: apt-get install {PROGRAMS[0]}")
        pytest.skip("Chromium is not installed")
    expect.set_options(timeout=WAIT_MAX_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


class Tab:
    """A page of the dashboard in a browser context of its own, with all problems that the browser reports."""

    def __init__(self, page: Page, root: str) -> None:
        self.page = page
        self.root = root
        self.problems: list[str] = []
        page.set_default_timeout(WAIT_MAX_MS)
        page.on("console", self._note)
        page.on("pageerror", lambda error: self.problems.append(f"exception: {error}"))
        page.on("request", lambda request: self._check_origin(request.url))

    def open(self, place: str = "") -> Page:
        """Open a page of the dashboard by its fragment, as if its address was typed."""
        self.page.goto("about:blank")
        self.page.goto(f"{self.root}/ui/#/{place}")
        return self.page

    def heading(self, name: str) -> Locator:
        return self.page.get_by_role("heading", name=name)

    def expect_text(self, *texts: str) -> None:
        """Wait until the page shows all of these."""
        for text in texts:
            expect(self.page.locator("main")).to_contain_text(text)

    def find_violations(self, rules: Sequence[str] = STANDARDS) -> list[str]:
        """The violations of WCAG 2.2 AA, and of axe-core's best practices, with the elements; or of these rules."""
        self.page.evaluate(AXE)
        found: dict[str, Any] = self.page.evaluate(
            "([rows, standards]) => axe.run({exclude: [rows]}, {runOnly: standards, resultTypes: ['violations']})",
            [MORE_ROWS, list(rules)],
        )
        return [
            f"{one['id']}: {node['html'][:200]} {node['failureSummary']}"
            for one in found["violations"]
            for node in one["nodes"]
        ]

    def is_wider_than_screen(self) -> bool:
        """Whether the page has to be scrolled sideways as a whole; parts of it may."""
        return bool(self.page.evaluate("document.documentElement.scrollWidth > innerWidth"))

    def forget(self, text: str, *, is_certain: bool = True) -> None:
        """Drop the problems that contain this text, because a test provoked them. One is required if it is certain."""
        assert not is_certain or any(text in one for one in self.problems), self.problems
        self.problems = [one for one in self.problems if text not in one]

    def _note(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(f"{message.type}: {message.text} {message.location.get('url', '')}")

    def _check_origin(self, url: str) -> None:
        if not url.startswith((self.root, "about:", "data:", "blob:")):
            self.problems.append(f"request to another origin: {url}")


@contextmanager
def open_tab(
    browser: Browser, root: str, size: ViewportSize = WIDE, scheme: str = "light", *, touch: bool = False
) -> Iterator[Tab]:
    """Open a tab in a context of its own: no storage, no cache."""
    context = browser.new_context(
        viewport=size,
        color_scheme="dark" if scheme == "dark" else "light",
        reduced_motion="reduce",
        has_touch=touch,
    )
    try:
        yield Tab(context.new_page(), root)
    finally:
        context.close()
