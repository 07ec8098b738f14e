from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.dashboard.browser import Tab, chromium, open_tab
from tests.dashboard.example_cluster import example_cluster
from tests.deploy.system import FREE_PORTS, up


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium for one file: while Playwright runs, no other test can use asyncio in this thread."""
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def root(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a live system with the work of the example."""
    with up("--ephemeral", *FREE_PORTS, folder=tmp_path_factory.mktemp("system")) as running:
        endpoints = running.announced()
        with example_cluster(endpoints["native"]):
            yield endpoints["rest"]
        assert running.stop() == 0


@pytest.fixture
def tab(browser: Browser, root: str) -> Iterator[Tab]:
    """A wide, light tab in which the browser must report no problem."""
    with open_tab(browser, root) as opened:
        yield opened
        assert opened.problems == []
