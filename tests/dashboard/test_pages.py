"""Every page of the dashboard in a real browser, beside a live system with work in it."""

import json
import re
from typing import Final

import pytest
from playwright.sync_api import Browser, Route, expect

from tests.dashboard.browser import APPEARANCE, NARROW, Tab, open_tab

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]

PAGES: Final = {
    "overview": ("Capacity", "40 nodes", "research"),
    "queues": ("language", "11 of 11 queues"),
    "queue/root.research.language": ("after 1s", "train-llm", "Stop the queue"),
    "applications": ("train-resnet", "root.users.bob"),
    "application/cohort-model": ("no node takes it", "add a node with 2 vcore, 96 GiB", "Kill"),
    "nodes": ("node-07", "unschedulable", "95 % and more"),
    "node/node-07": ("the RM drains it", "host-07.example", "Cordon"),
    "users": ("alice", "96 vcore"),
    "preemptions": ("train-llm", "its queue is below its guaranteed amount"),
    "events": ("etl-orders", "allocation added"),
    "history": ("Period",),
    "configuration": ("company", "No changes."),
    "system": ("healthy", "company", "connected"),
}
"""The fragment of each page, and texts that it shows once it has its data."""


@pytest.mark.parametrize("place", PAGES)
def test_a_page_is_accessible_wide_and_light_narrow_and_dark(browser: Browser, root: str, place: str) -> None:
    with open_tab(browser, root) as tab:
        page = tab.open(place)
        tab.expect_text(*PAGES[place])
        assert tab.find_violations() == []
        assert not tab.is_wider_than_screen()
        page.emulate_media(color_scheme="dark")
        page.set_viewport_size(NARROW)
        assert tab.find_violations(APPEARANCE) == []
        assert not tab.is_wider_than_screen()
        assert tab.problems == []


def test_links_lead_from_a_queue_to_its_application_and_to_the_explanation_of_an_ask(tab: Tab) -> None:
    page = tab.open("queues")
    page.get_by_role("link", name="root.sandbox").click()
    page.get_by_role("link", name="Applications").last.click()
    page.get_by_role("link", name="load-test").click()
    page.get_by_role("button", name=re.compile("Explain load-test")).click()
    expect(page.get_by_role("region", name=re.compile("Why load-test-0. waits"))).to_contain_text("short by 8 GiB")
    assert tab.find_violations() == []


def test_applications_are_listed_with_the_reason_why_they_wait(tab: Tab) -> None:
    page = tab.open("applications?text=load-test")
    row = page.locator("tbody tr", has=page.get_by_role("link", name="load-test"))
    expect(row).to_contain_text("queue maximum")
    page.get_by_role("button", name="reason").click()
    expect(page).to_have_url(re.compile("sort=-reason"))
    expect(row).to_contain_text("queue maximum")
    assert tab.find_violations() == []


def test_a_remedy_leads_to_the_queue_and_the_user_that_it_names(tab: Tab) -> None:
    page = tab.open("application/load-test")
    remedies = page.get_by_role("region", name="Why it waits").locator("li")
    remedies.get_by_role("link", name="root.sandbox", exact=True).first.click()
    expect(page).to_have_url(re.compile("#/queue/root.sandbox$"))
    page = tab.open("application/notebook-bob")
    expect(remedies.get_by_role("link", name="root.users.bob", exact=True).first).to_be_visible()
    assert tab.find_violations() == []


def test_a_failed_health_check_is_shown_with_its_next_step(tab: Tab) -> None:
    check = {
        "Name": "Disk speed",
        "Succeeded": False,
        "Description": "Writes are fast",
        "DiagnosisMessage": "a write took 7 s",
        "NextStep": "find what else writes to the disk",
    }
    passed = {"Name": "Clock", "Succeeded": True, "Description": "The clock is steady", "DiagnosisMessage": ""}
    document = {"Healthy": False, "HealthChecks": [check, passed]}
    tab.page.route("**/ws/v1/scheduler/healthcheck*", lambda route: route.fulfill(json=document))
    tab.open("overview")
    tab.expect_text("Disk speed: a write took 7 s", "Next: find what else writes to the disk")
    assert tab.find_violations() == []
    tab.open("system")
    tab.expect_text("a write took 7 s", "Next: find what else writes to the disk", "The clock is steady")
    assert tab.find_violations() == []


def test_filters_and_order_are_part_of_the_address(tab: Tab) -> None:
    page = tab.open("applications")
    page.get_by_label("User").fill("etl")
    page.get_by_role("button", name="application").click()
    expect(page).to_have_url(re.compile("user=etl"))
    expect(page).to_have_url(re.compile("sort=-application"))
    tab.expect_text("3 rows")
    names = page.locator("tbody td:first-child a")
    expect(names).to_have_text(["etl-returns", "etl-orders", "etl-clicks"])
    page.reload()
    expect(names).to_have_text(["etl-returns", "etl-orders", "etl-clicks"])
    assert page.get_by_label("User").input_value() == "etl"


def test_the_keyboard_is_enough(tab: Tab) -> None:
    page = tab.open("overview")
    tab.expect_text("Capacity")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the page")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    page.keyboard.press("g")
    page.keyboard.press("a")
    expect(page).to_have_title("Applications · yunishard")
    expect(page.locator("main")).to_be_focused()  # a screen reader continues there
    page.keyboard.press("/")
    expect(page.get_by_label("Name")).to_be_focused()
    page.keyboard.type("gq")  # no shortcut while typing
    expect(page).to_have_url(re.compile("text=gq"))
    page.get_by_label("Name").fill("")
    tab.expect_text("train-resnet")
    table = page.get_by_role("region", name="Applications")
    table.focus()
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="application")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("columnheader", name="application", exact=True)).to_have_attribute(
        "aria-sort", "descending"
    )


def test_the_queue_tree_opens_and_closes(tab: Tab) -> None:
    page = tab.open("queues")
    tab.expect_text("11 of 11 queues")
    page.get_by_role("button", name="queues below root.research").click()
    tab.expect_text("9 of 11 queues")
    expect(page.get_by_role("link", name="root.research.vision")).to_have_count(0)
    page.get_by_role("button", name="Collapse").click()
    tab.expect_text("5 of 11 queues")
    page.get_by_label("Name").fill("vision")
    tab.expect_text("3 of 11 queues")


def test_colours_are_those_of_the_system_until_the_user_chooses(browser: Browser, root: str) -> None:
    backgrounds = []
    for scheme in ("light", "dark"):
        with open_tab(browser, root, scheme=scheme) as tab:
            page = tab.open("system")
            background = "getComputedStyle(document.body).backgroundColor"
            backgrounds.append(page.evaluate(background))
            page.get_by_role("button", name="colours").click()
            backgrounds.append(page.evaluate(background))
            page.reload()
            assert page.evaluate(background) == backgrounds[-1]
            assert tab.problems == []
    light, dark, dark_again, light_again = backgrounds
    assert (light, dark) == (light_again, dark_again)
    assert light != dark


def test_a_name_that_does_not_exist_is_reported_and_the_page_stays_usable(tab: Tab) -> None:
    page = tab.open("application/nothing")
    tab.expect_text("Application not found")
    page.goto(f"{tab.root}/ui/#/nowhere")
    expect(tab.heading("There is no such page")).to_be_visible()
    tab.forget("404")


def test_history_is_drawn_as_charts(tab: Tab) -> None:
    """A system records a sample each minute, so the test has its own."""
    now = 1_800_000_000_000_000_000
    rows = [
        {
            "timestamp": now + minute * 60_000_000_000,
            "runningApps": minute,
            "allocatedResource": {"vcore": 1000 * minute, "memory": minute << 30},
            "pendingResource": {"vcore": 500},
        }
        for minute in range(30)
    ]

    def answer(route: Route) -> None:
        route.fulfill(json={"rows": rows})

    tab.page.route("**/ws/v1/history/queues?*", answer)
    page = tab.open("history")
    tab.expect_text("Running applications", "vcore", "now: used 29, pending 0.5", "29 GiB")
    expect(page.locator("canvas")).to_have_count(3)
    assert tab.find_violations() == []


def test_the_map_of_nodes_opens_the_node_of_a_cell(tab: Tab) -> None:
    page = tab.open("nodes")
    tab.expect_text("40 rows")
    page.locator("canvas.map").click(position={"x": 12, "y": 12})
    expect(page).to_have_url(re.compile("#/node/node-00"))


def test_a_lost_connection_is_shown_and_ends(tab: Tab) -> None:
    page = tab.open("system")
    tab.expect_text("connected")
    page.route("**/ws/v1/**", lambda route: route.abort())
    expect(page.get_by_text("not reachable", exact=True)).to_be_visible()
    tab.expect_text("connected")  # what was received last stays
    page.unroute("**/ws/v1/**")
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    tab.forget("ERR_FAILED")


def test_only_rows_that_can_be_seen_are_requested(tab: Tab) -> None:
    """Of 20,000 applications; the large ones are measured by `measure_scrolling.py`."""
    columns = ["application", "state", "queue", "user", "groups", "pending", "asks", "used", "allocations", "submitted"]
    asked: list[int] = []

    def answer(route: Route) -> None:
        query = dict(part.split("=") for part in route.request.url.partition("?")[2].split("&"))
        first, limit = int(query["offset"]), int(query["limit"])
        asked.append(limit)
        rows = [
            [f"app-{number:05}", "running", "root.a", "ann", [], {"vcore": 1000}, 1, {}, 0, 0]
            for number in range(first, min(first + limit, 20_000))
        ]
        route.fulfill(body=json.dumps({"columns": columns, "rows": rows, "total": 20_000, "resources": ["vcore"]}))

    tab.page.route("**/table/applications?*", answer)
    page = tab.open("applications")
    tab.expect_text("20,000 rows", "app-00000")
    table = page.get_by_role("region", name="Applications")
    table.evaluate("one => { one.scrollTop = one.scrollHeight / 2; }")
    tab.expect_text("app-10000")
    table.focus()
    page.keyboard.press("End")
    tab.expect_text("app-19999")
    assert page.locator("tbody tr").count() < 100
    assert set(asked) <= {200, 400}
    assert len(asked) < 20
