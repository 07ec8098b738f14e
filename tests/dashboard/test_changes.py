"""Changes from the dashboard to a live system: a configuration, and stopping, cordoning, moving and killing."""

import json
import re

import httpx
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.dashboard.browser import NARROW, Tab, open_tab

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]


def edit(page: Page, before: str, after: str) -> None:
    """Replace a part of the configuration in the editor."""
    editor = page.get_by_label("Configuration as YAML")
    text = editor.input_value()
    assert before in text
    editor.fill(text.replace(before, after))


def test_a_configuration_is_validated_compared_measured_and_applied(tab: Tab) -> None:
    page = tab.open("configuration")
    tab.expect_text("No changes.")
    edit(page, "max: {vcore: 60, memory: 240Gi}", "max: {vcore: twenty, memory: 240Gi}")
    tab.expect_text("line 41", "resources.max", "invalid quantity")
    expect(page.get_by_role("button", name="Review the change")).to_be_disabled()
    edit(page, "max: {vcore: twenty, memory: 240Gi}", "max: {vcore: 40, memory: 64Gi}")
    tab.expect_text("valid")
    page.get_by_role("button", name="Review the change").click()
    expect(page.get_by_role("region", name="Changed lines")).to_contain_text("+                 max: {vcore: 40")
    tab.expect_text(
        "1 line added, 1 removed",
        "default root.analytics.reports resources.max.vcore: 60 -> 40",
        "root.analytics.reports uses 80 GiB, 16 GiB more than its new maximum 64 GiB",
    )
    assert tab.find_violations() == []
    page.get_by_role("button", name="Apply").click()
    tab.expect_text("Applied as version 2.", "No changes.")
    queue = httpx.get(f"{tab.root}/ws/v1/partition/default/queue/root.analytics.reports").json()
    assert queue["maxResource"]["vcore"] == 40_000


def plan_changes(tab: Tab, *changes: tuple[str, str]) -> Locator:
    """Change the configuration and plan the changes; the part of the page with the report."""
    page = tab.open("configuration")
    tab.expect_text("No changes.")
    for before, after in changes:
        edit(page, before, after)
    page.get_by_role("button", name="Review the change").click()
    region = page.get_by_role("region", name="What would happen")
    region.get_by_role("button", name="Plan the change").click()
    return region


SANDBOX = "max: {vcore: 16, memory: 64Gi}"
LARGER = (SANDBOX, "max: {vcore: 32, memory: 128Gi}")
SMALLER = (SANDBOX, "max: {vcore: 16, memory: 32Gi}\n            properties: {quota.preemption.delay: 1m}")
PREEMPTS = ("    nodesortpolicy:", "    preemption: {quotapreemptionenabled: true}\n    nodesortpolicy:")


def test_a_plan_shows_who_starts_and_who_is_evicted_and_changes_nothing(browser: Browser, tab: Tab) -> None:
    report = plan_changes(tab, LARGER)
    expect(report).to_contain_text("asks more than without the change start.")
    expect(report.get_by_role("group", name="Expected starts that the change affects")).to_contain_text("load-test-0")
    expect(report.get_by_role("group", name="Use of the nodes")).to_contain_text(" of 640 (")
    with open_tab(browser, tab.root, NARROW, "dark") as narrow:
        report = plan_changes(narrow, PREEMPTS, SMALLER)
        expect(report).to_contain_text("Above a maximum: root.sandbox.")
        for text in ("in 1 min", "gil", "root.sandbox"):
            expect(report.get_by_role("group", name="Evicted")).to_contain_text(text)
        report.get_by_text("Taken for granted").click()
        expect(report).to_contain_text("Nothing else arrives")
        assert narrow.find_violations() == []
        assert not narrow.is_wider_than_screen()
        assert narrow.problems == []
    assert httpx.get(f"{tab.root}/ws/v1/partition/default/queue/root.sandbox").json()["maxResource"]["vcore"] == 16_000


@pytest.mark.parametrize(
    ("status", "message", "hint"),
    [
        (403, "Only administrators may plan", "Ask a scheduler administrator"),
        (409, "the partition cannot take this configuration", "Correct the change above"),
        (503, "another plan is being made", "Try again in a moment"),
    ],
)
def test_a_plan_that_is_not_made_shows_why_and_the_next_step(tab: Tab, status: int, message: str, hint: str) -> None:
    body = json.dumps({"statusCode": status, "message": message})
    tab.page.route("**/plan", lambda route: route.fulfill(status=status, body=body))
    region = plan_changes(tab, LARGER)
    expect(region).to_contain_text(f"{message}. {hint}")
    expect(region.get_by_role("button", name="Plan the change")).to_be_enabled()
    tab.forget(str(status))


def test_a_configuration_that_was_changed_meanwhile_is_not_overwritten(tab: Tab) -> None:
    page = tab.open("configuration")
    tab.expect_text("No changes.")
    address = f"{tab.root}/ws/v1/config?rm=company"
    other = httpx.get(address).text + "# of a colleague\n"
    assert httpx.put(address, content=other.encode()).status_code == 200
    edit(page, "max: {vcore: 16, memory: 64Gi}", "max: {vcore: 18, memory: 64Gi}")
    page.get_by_role("button", name="Review the change").click()
    page.get_by_role("button", name="Apply").click()
    tab.expect_text("Another version was applied meanwhile")
    assert httpx.get(address).text == other
    tab.forget("412")


def test_a_change_may_be_undone_before_it_is_applied(tab: Tab) -> None:
    page = tab.open("configuration")
    tab.expect_text("No changes.")
    edit(page, "name: sandbox", "name: playground")
    expect(page.get_by_role("button", name="Review the change")).to_be_enabled()
    page.get_by_role("button", name="Undo all").click()
    tab.expect_text("No changes.")
    assert "sandbox" in page.get_by_label("Configuration as YAML").input_value()


def test_a_queue_is_stopped_with_a_reason_and_started(tab: Tab) -> None:
    page = tab.open("queue/root.sandbox")
    page.get_by_role("button", name="Stop the queue").click()
    confirm = page.get_by_role("form", name="Stop the queue")
    confirm.get_by_label("Reason").fill("disk full")
    assert tab.find_violations() == []
    confirm.get_by_role("button", name="Stop the queue").click()
    tab.expect_text("is stopped", "by ", "disk full")
    page.get_by_role("button", name="Start the queue").click()
    page.get_by_role("form", name="Start the queue").get_by_role("button", name="Start the queue").click()
    tab.expect_text("is active", "defined by")


def test_limits_of_a_queue_are_shown_as_changed_lines_and_applied(tab: Tab) -> None:
    page = tab.open("queue/root.research.vision")
    page.get_by_role("button", name="Change the limits").click()
    form = page.get_by_role("form", name="Change the limits")
    expect(form.get_by_label("maximum gpu")).to_have_attribute("placeholder", "16")
    expect(form.get_by_role("button", name="Show the change")).to_be_disabled()
    form.get_by_label("maximum gpu").fill("many")
    form.get_by_role("button", name="Show the change").click()
    expect(form).to_contain_text("invalid quantity")
    tab.forget("400")
    form.get_by_label("maximum gpu").fill("12")
    form.get_by_label("guaranteed vcore").fill("8")
    form.get_by_label("maximum memory").fill("none")
    form.get_by_role("button", name="Show the change").click()
    lines = form.get_by_role("region", name="Changed lines")
    expect(lines).to_contain_text("-                   max: {vcore: 160, memory: 800Gi, gpu: 16}")
    expect(lines).to_contain_text("gpu: 12")
    report = form.get_by_role("region", name="What would happen")
    report.get_by_role("button", name="Plan the change").click()
    expect(report).to_contain_text("Above a maximum: root.research.vision.")
    assert tab.find_violations() == []
    form.get_by_role("button", name="Apply").click()
    tab.expect_text("Applied as version ")
    queue = httpx.get(f"{tab.root}/ws/v1/partition/default/queue/root.research.vision").json()
    assert (queue["maxResource"]["gpu"], queue["guaranteedResource"]["vcore"]) == (12, 8000)


def test_limits_that_a_colleague_changes_meanwhile_are_not_overwritten(tab: Tab) -> None:
    page = tab.open("queue/root.analytics.nightly")
    page.get_by_role("button", name="Change the limits").click()
    form = page.get_by_role("form", name="Change the limits")
    form.get_by_label("Running applications at most").fill("3")
    form.get_by_role("button", name="Show the change").click()
    expect(form.get_by_role("region", name="Changed lines")).to_contain_text("+                 maxapplications: 3")
    address = f"{tab.root}/ws/v1/config?rm=company"
    other = httpx.get(address).text + "# of another colleague\n"
    assert httpx.put(address, content=other.encode()).status_code == 200
    form.get_by_role("button", name="Apply").click()
    expect(form).to_contain_text("Another version of the configuration was applied meanwhile")
    tab.forget("412")
    form.get_by_role("button", name="Show the change").click()
    form.get_by_role("button", name="Apply").click()
    tab.expect_text("Applied as version ")


def test_a_queue_that_no_configuration_names_has_no_limits_to_change(tab: Tab) -> None:
    page = tab.open("queue/root.users.bob")
    tab.expect_text("placement")
    expect(page.get_by_role("button", name="Stop the queue")).to_be_visible()
    expect(page.get_by_role("button", name="Change the limits")).to_have_count(0)


def test_a_node_is_cordoned_and_uncordoned_and_a_confirmation_may_be_cancelled(tab: Tab) -> None:
    page = tab.open("node/node-20")
    page.get_by_role("button", name="Drain").click()
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("form")).to_have_count(0)
    page.get_by_role("button", name="Cordon", exact=True).click()
    page.get_by_role("form", name="Cordon").get_by_role("button", name="Cordon").click()
    tab.expect_text("is cordoned: ", "by ")
    page.get_by_role("button", name="Uncordon").click()
    page.get_by_role("form", name="Uncordon").get_by_role("button", name="Uncordon").click()
    tab.expect_text("is schedulable", "host")


def test_an_application_is_moved_and_killed(tab: Tab) -> None:
    page = tab.open("application/scratch")
    page.get_by_role("button", name="Move to another queue").click()
    move = page.get_by_role("form", name="Move to another queue")
    move.get_by_label("To").fill("root.nowhere")
    move.get_by_role("button", name="Move to another queue").click()
    expect(move).to_contain_text("root.nowhere")  # refused, with the reason of the API
    tab.forget("Failed to load resource")
    move.get_by_label("To").fill("root.research.language")
    move.get_by_role("button", name="Move to another queue").click()
    tab.expect_text("is in root.research.language")
    page.get_by_role("button", name="Kill").click()
    page.get_by_role("form", name="Kill").get_by_role("button", name="Kill").click()
    tab.expect_text("is failed")
    expect(page.locator("main")).to_contain_text(re.compile("failing|failed|not found"))
    tab.open()
    tab.forget("404", is_certain=False)  # if the page asked once more for the application
