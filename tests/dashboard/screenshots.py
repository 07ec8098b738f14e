"""Make the pictures of README.md and docs/operating/dashboard.md from a live system with the work of the example:
`make pictures`. Look at them before you commit them.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from playwright.sync_api import Page, ViewportSize

from tests.dashboard.browser import NARROW, Tab, chromium, open_tab
from tests.dashboard.example_cluster import example_cluster
from tests.dashboard.process_diagram import draw
from tests.deploy.system import FREE_PORTS, find_partitions, up
from yunishard.cli.commands.rest import Rest
from yunishard.cli.top.app import TopApp
from yunishard.sdk.blocking import BlockingResourceManager

FOLDER: Final = Path(__file__).parents[2] / "docs" / "operating" / "images"
SIZE: Final[ViewportSize] = {"width": 1160, "height": 720}
LAB: Final = "partitions: [{name: batch, queues: [{name: root}]}, {name: gpu, queues: [{name: root}]}]"
"""A second RM, for the diagram of the processes."""

PARTITIONS: Final = 3

TERMINAL: Final = (100, 26)
"""Columns and lines of the terminal in the picture of `yunishard top`."""


def review(page: Page) -> None:
    """Change the configuration, and show what that means."""
    change(page, ("max: {vcore: 60, memory: 240Gi}", "max: {vcore: 40, memory: 64Gi}"))
    page.get_by_text("What it means for the work that runs now").wait_for()
    page.get_by_role("button", name="Apply").scroll_into_view_if_needed()


def plan(page: Page) -> None:
    """Change the configuration, and show what would happen."""
    change(
        page,
        ("    nodesortpolicy:", "    preemption: {quotapreemptionenabled: true}\n    nodesortpolicy:"),
        (
            "max: {vcore: 60, memory: 240Gi}",
            "max: {vcore: 40, memory: 64Gi}\n                properties: {quota.preemption.delay: 1m}",
        ),
        ("max: {vcore: 16, memory: 64Gi}", "max: {vcore: 32, memory: 128Gi}"),
    )
    page.get_by_role("button", name="Plan the change").click()
    page.get_by_text("Use of the nodes").wait_for()
    page.get_by_role("heading", name="What would happen").evaluate("one => one.scrollIntoView()")


def change(page: Page, *changes: tuple[str, str]) -> None:
    """Change the text of the configuration, and open the review."""
    editor = page.get_by_label("Configuration as YAML")
    text = editor.input_value()
    for before, after in changes:
        text = text.replace(before, after)
    editor.fill(text)
    page.get_by_role("button", name="Review the change").click()


def take(tab: Tab, name: str, place: str, text: str, prepare: Callable[[Page], None] | None = None) -> None:
    page = tab.open(place)
    tab.expect_text(text)
    if prepare is not None:
        prepare(page)
    page.wait_for_timeout(500)  # bars grow to their length
    page.screenshot(path=FOLDER / f"dashboard-{name}.png", animations="disabled")


async def draw_top(rest: str) -> str:
    """`yunishard top` of the example, as SVG."""
    app = TopApp(lambda: Rest(rest), "default")
    async with app.run_test(size=TERMINAL) as pilot:
        while True:
            text = app.export_screenshot(title="yunishard top")
            if "language" in text and "&#160;waiting" in text:  # the table and the totals
                return text
            await pilot.pause(0.1)


def main() -> None:
    """Write all pictures."""
    FOLDER.mkdir(exist_ok=True)
    with TemporaryDirectory() as folder, up("--ephemeral", *FREE_PORTS, folder=Path(folder)) as running:
        endpoints = running.announced()
        with example_cluster(endpoints["native"]), chromium() as browser:
            with BlockingResourceManager(endpoints["native"], rm_id="lab", config=LAB):
                running.until(lambda: len(find_partitions(running.children.values())) == PARTITIONS)
                (FOLDER / "processes.svg").write_text(draw(find_partitions(running.children.values())))
            with open_tab(browser, endpoints["rest"], SIZE) as tab:
                take(tab, "overview", "overview", "research")
                take(tab, "queues", "queues", "language")
                take(tab, "application", "application/cohort-model", "add a node with")
                take(tab, "configuration", "configuration", "No changes.", review)
                take(tab, "plan", "configuration", "No changes.", plan)
            with open_tab(browser, endpoints["rest"], SIZE, "dark") as tab:
                take(tab, "nodes", "nodes", "unschedulable")
            with open_tab(browser, endpoints["rest"], NARROW) as tab:
                take(tab, "narrow", "applications", "train-llm")
        with example_cluster(endpoints["native"]):
            (FOLDER / "top.svg").write_text(asyncio.run(draw_top(endpoints["rest"])))
        running.stop()


if __name__ == "__main__":
    main()
