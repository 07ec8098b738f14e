"""The report of simulated runs in a real browser, opened as a file."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.dashboard.browser import APPEARANCE, NARROW, Tab, open_tab
from tests.simulator.sample_runs import write_run, write_sample_run
from yunishard.workloads.simulator.report import build_report
from yunishard.workloads.simulator.run_folder import load_runs

pytestmark = pytest.mark.processes

CHARTS = 7

COUNT_COLOURED = """canvas => {
  const colour = document.createElement("canvas").getContext("2d");
  colour.fillStyle = getComputedStyle(document.querySelector(".shown .colour")).borderTopColor;
  const wanted = [1, 3, 5].map((at) => parseInt(colour.fillStyle.slice(at, at + 2), 16));
  const copy = document.createElement("canvas");
  copy.width = canvas.width;
  copy.height = canvas.height;
  const context = copy.getContext("2d", { willReadFrequently: true });
  context.drawImage(canvas, 0, 0);
  const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
  let count = 0;
  for (let at = 0; at < data.length; at += 4) {
    if (wanted.every((value, part) => Math.abs(data[at + part] - value) < 9) && data[at + 3] > 200) count += 1;
  }
  return count;
}"""
"""The pixels of a chart that have the colour of the first run."""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    write_sample_run(folder / "fifo")
    write_sample_run(folder / "shortest", is_shortest_first=True)
    write_sample_run(folder / "more-nodes", cores=20)
    file = folder / "report.html"
    file.write_text(build_report(load_runs([folder]), title="Simulation report"), encoding="utf-8")
    return file


def open_report(tab: Tab, file: Path) -> Page:
    tab.page.goto(file.as_uri())
    expect(tab.page.locator(".plot canvas")).to_have_count(CHARTS)
    return tab.page


def count_coloured(page: Page, chart: str) -> int:
    return int(page.locator(f'[data-chart="{chart}"] canvas').evaluate(COUNT_COLOURED))


def test_it_is_accessible_wide_and_light_narrow_and_dark(browser: Browser, report: Path) -> None:
    with open_tab(browser, "file://") as tab:
        page = open_report(tab, report)
        for table in page.locator("summary").all():
            table.click()
        assert tab.find_violations() == []
        assert not tab.is_wider_than_screen()
        page.emulate_media(color_scheme="dark")
        page.set_viewport_size(NARROW)
        assert tab.find_violations(APPEARANCE) == []
        assert not tab.is_wider_than_screen()
        assert tab.problems == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_each_chart_draws_the_runs_in_the_colours_of_the_scheme(browser: Browser, report: Path, scheme: str) -> None:
    with open_tab(browser, "file://", scheme=scheme) as tab:
        page = open_report(tab, report)
        for name in ("utilisation", "share", "waits", "running", "waiting", "slowdown", "slowdowns"):
            assert count_coloured(page, name) > 100, name
        assert tab.problems == []


def test_charts_are_drawn_again_if_the_scheme_changes(browser: Browser, report: Path) -> None:
    with open_tab(browser, "file://") as tab:
        page = open_report(tab, report)
        light = page.locator(".shown .colour").first.evaluate("one => getComputedStyle(one).borderTopColor")
        page.emulate_media(color_scheme="dark")
        assert page.locator(".shown .colour").first.evaluate("one => getComputedStyle(one).borderTopColor") != light
        assert count_coloured(page, "utilisation") > 100


def test_a_run_is_hidden_and_shown_with_the_keyboard(browser: Browser, report: Path) -> None:
    with open_tab(browser, "file://") as tab:
        page = open_report(tab, report)
        page.get_by_role("checkbox", name="fifo").focus()
        page.keyboard.press("Space")
        page.wait_for_function("() => document.querySelectorAll('[data-chart=waiting] .u-off').length > 0")
        assert count_coloured(page, "waiting") == 0
        page.keyboard.press("Space")
        page.wait_for_function("() => document.querySelectorAll('[data-chart=waiting] .u-series.u-off').length === 0")
        assert count_coloured(page, "waiting") > 100
        assert tab.problems == []


def test_a_chart_shows_the_chosen_queue_in_all_runs_or_all_queues_of_a_run(browser: Browser, report: Path) -> None:
    with open_tab(browser, "file://") as tab:
        page = open_report(tab, report)
        share = page.locator('[data-chart="share"]')
        expect(share.locator(".u-series").filter(has_text="guaranteed")).to_have_count(3)
        queue = page.locator('select[name="choice"][data-for="share"]')
        queue.select_option("root.research.language")
        expect(share.locator(".u-series").filter(has_text="guaranteed")).to_have_count(0)
        queue.select_option(label="queues of shortest")
        expect(share.locator(".u-series")).to_contain_text(["root.batch", "root.batch, guaranteed", "root.research"])
        page.locator('select[name="resource"][data-for="share"]').select_option("memory")
        expect(share.locator("figcaption")).to_contain_text("memory")
        assert tab.problems == []


def test_the_table_of_a_chart_has_its_data(browser: Browser, report: Path) -> None:
    with open_tab(browser, "file://") as tab:
        page = open_report(tab, report)
        figure = page.locator('[data-chart="waits"]')
        figure.get_by_text("Data as a table").click()
        expect(figure.locator(".scroll thead th")).to_have_text(["wait", "fifo", "more-nodes", "shortest"])
        expect(figure.locator(".scroll tbody tr").last.locator("td").last).to_contain_text("%")
        page.locator('select[data-for="waits"]').select_option("root.batch")
        expect(figure.locator(".scroll tbody tr")).to_have_count(23)


def test_without_scripts_the_figures_are_there(browser: Browser, report: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(report.as_uri())
    expect(page.locator("noscript p")).to_be_visible()
    expect(page.locator("tr").filter(has=page.get_by_role("rowheader", name="mean wait"))).to_contain_text("2 h 40 min")
    context.close()


def test_a_run_in_which_nothing_happened_has_a_report(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(build_report(load_runs([write_run(tmp_path / "empty")]), title="Empty"), encoding="utf-8")
    with open_tab(browser, "file://") as tab:
        open_report(tab, file)
        assert tab.problems == []
        assert tab.find_violations() == []
