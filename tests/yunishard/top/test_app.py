"""The screen of `yunishard top`, headless, against a fake web service."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator

import pytest
from textual.pilot import Pilot
from textual.widgets import Static

from tests.yunishard.commands.fake_web import FakeWeb, web
from tests.yunishard.hostile import HOSTILE, find_effects
from yunishard.cli.commands.rest import Rest
from yunishard.cli.top.app import TextScreen, TopApp
from yunishard.cli.top.views import ROWS_MAX

WAIT_MAX_S = 15.0

PARTITION = {
    "name": "default",
    "capacity": {"capacity": {"vcore": 8000, "memory": 1 << 34}, "usedCapacity": {"vcore": 4000}},
    "totalNodes": 3,
    "applications": {"Running": 2, "Accepted": 1},
    "state": "Active",
}
QUEUES = {
    "columns": ["queue", "state", "used", "guaranteed", "maximum", "pending", "runningApplications", "maxApplications"],
    "rows": [
        ["root", "active", {"vcore": 4000}, {}, {"vcore": 8000}, {"vcore": 1000}, 2, 0],
        ["root.a", "active", {"vcore": 4000}, {"vcore": 2000}, {"vcore": 4000}, {}, 2, 5],
    ],
    "total": 2,
    "resources": ["vcore"],
}
EVENT = {
    "type": 2,
    "objectID": "app-1",
    "timestampNano": 10**18,
    "eventChangeDetail": 206,
    "resource": {"resources": {}},
}
EXPLANATION = {
    "kind": "application",
    "name": "app-1",
    "state": "running",
    "summary": "One ask waits: [root.a] is full.",
    "checks": [{"code": "queue-maximum", "passed": False, "text": "root.a: 4 of 4 vcore used"}],
}


def applications(*names: str, total: int = 0) -> dict[str, object]:
    return {
        "columns": ["application", "state", "queue", "used", "pending", "reason"],
        "rows": [[name, "running", "root.a", {"vcore": 1000}, {}, "queue-maximum"] for name in names],
        "total": total or len(names),
        "resources": ["vcore"],
    }


def table(name: str, *, sort: str, text: str = "") -> str:
    return f"GET partition/default/table/{name}?limit={ROWS_MAX}&sort={sort}" + (f"&text={text}" if text else "")


@pytest.fixture
def fake() -> Iterator[FakeWeb]:
    with web() as fake:
        fake.says("GET partitions", [PARTITION])
        fake.says("GET scheduler/healthcheck", {"Healthy": True, "HealthChecks": []})
        fake.says(table("queues", sort="queue"), QUEUES)
        fake.says(table("applications", sort="-pending"), applications("app-1", "app-2"))
        fake.says("GET partition/default/application/app-1/explain", EXPLANATION)
        known = {"InstanceUUID": "i", "LowestID": 0, "HighestID": 0}
        fake.says("GET events/batch?partition=default&count=1", {**known, "EventRecords": [EVENT]})
        fake.says("GET events/batch?partition=default&start=0&count=300", {**known, "EventRecords": [EVENT]})
        yield fake


class Top:
    """The screen of a running application, as text."""

    def __init__(self, app: TopApp, pilot: Pilot[None]) -> None:
        self.app = app
        self.pilot = pilot

    @property
    def text(self) -> str:
        """All that is on the screen."""
        lines = [strip.text for strip in self.app.screen._compositor.render_strips()]
        return "\n".join(line.rstrip() for line in lines)

    async def shows(self, *texts: str) -> None:
        """Wait until all texts are on the screen."""
        deadline = time.monotonic() + WAIT_MAX_S
        while not all(text in self.text for text in texts):
            assert time.monotonic() < deadline, f"{texts} are not shown:\n{self.text}"
            await self.pilot.pause(0.02)

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)


def run(
    fake: FakeWeb,
    test: Callable[[Top], Awaitable[None]],
    *,
    size: tuple[int, int] = (80, 24),
    partition: str = "default",
    period_s: float = 0.05,
) -> None:
    async def running() -> None:
        app = TopApp(lambda: Rest(fake.url), partition, period_s=period_s)
        async with app.run_test(size=size) as pilot:
            await test(Top(app, pilot))

    asyncio.run(running())


def test_the_queues_are_shown_first_as_a_tree_with_totals(fake: FakeWeb) -> None:
    async def test(top: Top) -> None:
        await top.shows("yunishard top · default", "3 nodes  2 running  1 waiting", "1 Queues", "2 queues")
        await top.shows("QUEUE", "root ", "  a ", "4 / 4", "2 / 5", "1 vcore")
        assert all(len(line) <= 80 for line in top.text.splitlines())

    run(fake, test)


def test_texts_of_clients_do_not_act_on_the_terminal(fake: FakeWeb) -> None:
    rows = [[HOSTILE, HOSTILE, {HOSTILE: 1}, {}, {HOSTILE: 2}, {}, 2, 0]]
    fake.says(table("queues", sort="queue"), {**QUEUES, "rows": rows, "total": 1, "resources": [HOSTILE]})
    fake.says(table("applications", sort="-pending"), applications(HOSTILE))
    headings: list[str] = []

    async def test(top: Top) -> None:
        await top.shows("1 queue")
        headings.extend(str(one.label) for one in top.app.pane.table.columns.values())
        shown = top.text
        await top.press("2")
        await top.shows("1 application")
        assert not find_effects("\n".join([*headings, shown, top.text]))

    run(fake, test, size=(160, 24))
    assert any("TITLE" in heading for heading in headings)


def test_only_the_visible_table_is_requested(fake: FakeWeb) -> None:
    async def test(top: Top) -> None:
        await top.shows("2 queues")
        assert not any("table/applications" in what for what in fake.asked)
        await top.press("2")
        await top.shows("2 applications", "app-2")

    run(fake, test)


def test_changes_arrive_and_the_cursor_stays_at_its_row(fake: FakeWeb) -> None:
    async def test(top: Top) -> None:
        await top.press("2")
        await top.shows("app-2")
        await top.press("down")
        assert top.app.pane.selected_key == "app-2"
        fake.says(table("applications", sort="-pending"), applications("app-0", "app-1", "app-2", total=20_000))
        await top.shows("app-0", "3 of 20,000 applications")
        assert top.app.pane.selected_key == "app-2"

    run(fake, test)


def test_the_order_and_the_filter_are_those_of_the_request(fake: FakeWeb) -> None:
    fake.says(table("applications", sort="-used"), applications("large"))
    fake.says(table("applications", sort="used"), applications("small"))
    fake.says(table("applications", sort="used", text="sp"), applications("spark"))

    async def test(top: Top) -> None:
        await top.press("2")
        await top.shows("app-1")
        await top.press("s")
        await top.shows("large", "sorted by -used")
        await top.press("r")
        await top.shows("small", "sorted by used")
        await top.press("slash", "s", "p", "enter")
        await top.shows("spark", "filter 'sp'")
        await top.press("escape")
        await top.shows("small")

    run(fake, test)


def test_enter_shows_the_row_and_why_it_waits(fake: FakeWeb) -> None:
    async def test(top: Top) -> None:
        await top.press("2")
        await top.shows("app-1")
        await top.press("enter")
        await top.shows("One ask waits: [root.a] is full.", "STOPS   root.a: 4 of 4 vcore used", "queue  ")
        assert isinstance(top.app.screen, TextScreen)
        await top.press("escape")
        await top.shows("2 applications")

    run(fake, test)


def test_a_pause_requests_nothing(fake: FakeWeb) -> None:
    async def test(top: Top) -> None:
        await top.shows("2 queues")
        await top.press("p")
        await top.shows("PAUSED")
        number = -1
        while number != len(fake.heard):  # some may be on their way; without the pause, more follow in each period
            number = len(fake.heard)
            await top.pilot.pause(0.4)
        await top.press("p")
        while len(fake.heard) == number:
            await top.pilot.pause(0.02)

    run(fake, test)


def test_events_are_shown_the_newest_first(fake: FakeWeb) -> None:
    async def test(top: Top) -> None:
        await top.press("4")
        await top.shows("1 event", "app-1", "running")

    run(fake, test)


def test_a_failure_is_shown_in_words_and_goes_away(fake: FakeWeb) -> None:
    async def test(top: Top) -> None:
        await top.shows("2 queues")
        fake.refuses("GET partitions", 503, "the broker does not answer")
        fake.refuses(table("queues", sort="queue"), 403, "not permitted")
        await top.shows("not permitted", "root.a"[5:])
        top.app.is_paused = False
        fake.says(table("queues", sort="queue"), QUEUES)
        await top.shows("2 queues")

    run(fake, test)


def test_without_partitions_it_waits_for_one(fake: FakeWeb) -> None:
    fake.says("GET partitions", [])

    async def test(top: Top) -> None:
        await top.shows("no resource manager has registered a partition yet")

    run(fake, test, partition="")


def test_the_next_partition_is_a_key_away(fake: FakeWeb) -> None:
    fake.says("GET partitions", [PARTITION, {**PARTITION, "name": "gpu", "totalNodes": 77}])
    gpu = table("queues", sort="queue").replace("default", "gpu")
    fake.says(gpu, {**QUEUES, "rows": QUEUES["rows"][:1], "total": 1})  # type: ignore[index]

    async def test(top: Top) -> None:
        await top.shows("(of 2, n: next)")
        await top.press("n")
        await top.shows("yunishard top · gpu", "77 nodes", "1 queue")

    run(fake, test)


def test_a_wide_screen_has_all_columns_and_help_lists_the_keys(fake: FakeWeb) -> None:
    async def test(top: Top) -> None:
        await top.shows("GUARANTEED")
        await top.press("question_mark")
        await top.shows("reverse the order")
        text = top.app.screen.query_one("#text", Static)
        assert text is not None

    run(fake, test, size=(160, 40))
