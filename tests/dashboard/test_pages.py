"""Every page of the dashboard in a real browser, beside a live system with work in it."""

from typing import Final

import pytest
from playwright.sync_api import Browser

from tests.dashboard.browser import NARROW, WIDE, open_tab

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]

PAGES: Final = {
    "system": ("healthy", "company", "connected"),
    "preemptions": ("train-llm", "its queue is below its guaranteed amount"),
    "events": ("etl-orders",),
    "history": ("Period",),
    "configuration": ("company", "No changes."),
}
"""The fragment of each page, and texts that it shows once it has its data."""


@pytest.mark.parametrize("place", PAGES)
def test_a_page_is_accessible_wide_and_light_narrow_and_dark(browser: Browser, root: str, place: str) -> None:
    for size, scheme in ((WIDE, "light"), (NARROW, "dark")):
        with open_tab(browser, root, size, scheme) as tab:
            tab.open(place)
            tab.expect_text(*PAGES[place])
            assert tab.find_violations() == []
            assert not tab.is_wider_than_screen()
            assert tab.problems == []
