"""Measure how smoothly long tables of the dashboard scroll: frame times, and rows in the page.

Start a system, fill it with `tests/big_partition.py`, and then:

    .venv/bin/python -m tests.dashboard.measure_scrolling http://127.0.0.1:29080
"""
# ruff: noqa: T201 - prints figures

import sys
from time import perf_counter
from typing import Any, Final

from playwright.sync_api import expect

from tests.dashboard.browser import chromium, open_tab

TABLES: Final = {"applications": "Applications", "nodes": "Nodes", "queues": "Queues", "users": "Users"}
SECONDS: Final = 5

SCROLL: Final = """
([box, seconds]) => new Promise((resolve) => {
  const frames = [];
  let rows = 0;
  let empty = 0;
  let last = performance.now();
  const end = last + seconds * 1000;
  const step = (now) => {
    frames.push(now - last);
    last = now;
    box.scrollTop += 60; // two rows a frame, about a hundred a second
    rows = Math.max(rows, box.querySelectorAll('tbody tr').length);
    const at = box.getBoundingClientRect();
    const seen = document.elementFromPoint(at.x + 40, Math.min(at.y + at.height / 2, innerHeight - 40))?.closest('tr');
    if (!seen || seen.textContent.trim().startsWith('…')) empty += 1;
    now < end ? requestAnimationFrame(step) : resolve({ frames: frames.slice(1), rows, empty });
  };
  requestAnimationFrame(step);
})
"""


def main(root: str) -> None:
    """Print a line for each table."""
    with chromium() as browser:
        for place, name in TABLES.items():
            with open_tab(browser, root) as tab:
                began = perf_counter()
                page = tab.open(place)
                box = page.get_by_role("region", name=name, exact=True)
                expect(box.locator("tbody a").first).to_be_visible()
                first_s = perf_counter() - began
                box.scroll_into_view_if_needed()
                found: dict[str, Any] = box.evaluate(f"box => ({SCROLL})([box, {SECONDS}])")
                frames = sorted(found["frames"])
                middle, late = frames[len(frames) // 2], frames[len(frames) * 95 // 100]
                print(
                    f"{place}: first rows after {first_s:.2f} s; {len(frames)} frames, median {middle:.1f} ms, "
                    f"95 % {late:.1f} ms, longest {frames[-1]:.0f} ms; at most {found['rows']} rows in the page; "
                    f"{found['empty']} frames with a row that had not arrived; problems: {tab.problems or 'none'}"
                )


if __name__ == "__main__":
    main(sys.argv[1])
