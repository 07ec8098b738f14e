"""Make the pictures of docs/choose-a-policy.md from the results of its commands (about two minutes):

.venv/bin/python -m tests.dashboard.report_screenshots

Look at them before you commit them.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from playwright.sync_api import Page, ViewportSize

from tests.dashboard.browser import chromium, open_tab
from yunishard.cli.main import main as run_command

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "docs" / "operating" / "images"
EXAMPLES: Final = ROOT / "examples"
POLICIES: Final = ("one-queue", "fair-groups", "guaranteed")
SIZE: Final[ViewportSize] = {"width": 1000, "height": 640}


def simulate(folder: Path) -> Path:
    """Run the commands of the page; return the report."""
    configs = [word for name in POLICIES for word in ("--config", str(EXAMPLES / "policies" / f"{name}.yaml"))]
    nodes = str(EXAMPLES / "policies" / "nodes.csv")
    log = str(EXAMPLES / "lcg-2005.swf.gz")
    assert run_command(["simulate", log, *configs, "--nodes", nodes, "--output", str(folder)]) == 0
    report = folder / "report.html"
    runs = [str(folder / name) for name in POLICIES]
    assert run_command(["simulate", "report", *runs, "--output", str(report)]) == 0
    return report


def take(page: Page, name: str, section: str) -> None:
    """Save the picture of one section."""
    page.get_by_role("region", name=section, exact=True).screenshot(path=FOLDER / f"simulation-{name}.png")


def main() -> None:
    """Write all pictures; the argument is a report that exists already."""
    with TemporaryDirectory() as folder, chromium() as browser:
        report = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else simulate(Path(folder))
        for scheme in ("light", "dark"):
            with open_tab(browser, "file://", SIZE, scheme) as tab:
                page = tab.page
                page.goto(report.as_uri())
                page.add_style_tag(content=".shown { position: static !important }")
                if scheme == "dark":
                    page.locator('select[name="choice"][data-for="share"]').select_option(label="queues of guaranteed")
                    take(page, "shares", "Queue shares against guaranteed")
                else:
                    take(page, "waits", "Waits")
                    take(page, "jobs", "Jobs over time")


if __name__ == "__main__":
    main()
