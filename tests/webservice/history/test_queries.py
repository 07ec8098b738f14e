"""Filters, access of viewers, and pages that show each row once."""

import asyncio
import base64
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.webservice.history.accounts import (
    DEFAULT,
    GPU,
    MINUTE,
    NOW,
    OTHER,
    S,
    application,
    began,
    gone,
    portion,
    sample,
    usage,
)
from tests.webservice.history.backends import BACKENDS, Backend, write
from yunishard.common.messages.query_messages import Actor
from yunishard.common.rest.records import GapView, PastAllocationView, PastApplicationView, PastQueueView, PastRow
from yunishard.webservice.history import queries
from yunishard.webservice.history.collector import Gap
from yunishard.webservice.history.queries import (
    LISTS,
    READERS_MAX,
    WAITING_MAX,
    HistoryFilter,
    HistoryReader,
    ListName,
    QueueRights,
)
from yunishard.webservice.history.sqlite_store import SqliteHistory
from yunishard.webservice.history.store import HistoryStore
from yunishard.webservice.views import RequestError

ALL = HistoryFilter()
AFTER = base64.urlsafe_b64encode(b"5.7").decode()


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    """An empty one."""
    with closing(BACKENDS[request.param](tmp_path)) as one:
        yield one


@pytest.fixture(scope="module", params=BACKENDS)
def history(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HistoryStore]:
    with closing(BACKENDS[request.param](tmp_path_factory.mktemp("reading"))) as filled:
        fill(filled)
        yield filled.history


def fill(backend: Backend) -> None:
    write(
        backend,
        portion(
            began("a", NOW, queue="root.a", user="bob"),
            began("b", NOW + S, queue="root.a.x", user="eve", app="app-2"),
            gone("a", NOW + 5 * S),
            ended=[
                application("app-1", NOW),
                application("app-2", NOW + S, user="eve", state="Failed", queue="root.ax"),
            ],
        ),
        portion(began("g", NOW + 2 * S, queue="root.a", user="bob"), partition=GPU),
        portion(partition=OTHER, ended=[application("app-3", NOW + 2 * S, queue="", user="bob", state="Rejected")]),
        replace(
            portion(),
            usage=[(kind, usage(name)) for kind, name in (("queues", "root"), ("queues", "root.a"), ("users", "bob"))],
            gaps=[Gap("events", NOW, NOW + S, None, "why")],
        ),
        replace(portion(), usage=[("users", usage("eve")), ("groups", usage("dev")), ("groups", usage("ops"))]),
    )


def rows(history: HistoryStore, name: ListName, wanted: HistoryFilter = ALL, limit: int = 100) -> list[PastRow]:
    return queries.read_page(history, name, wanted, limit=limit, after="").rows


@contextmanager
def refuses(status: int, pattern: str) -> Iterator[None]:
    with pytest.raises(RequestError, match=pattern) as caught:
        yield
    assert caught.value.status == status


def names(history: HistoryStore, name: ListName, wanted: HistoryFilter = ALL) -> list[str]:
    key = {"applications": "application_id", "allocations": "allocation_key", "gaps": "what"}
    attribute = key.get(name, f"{name[:-1]}_name")
    return [getattr(row, attribute) for row in rows(history, name, wanted)]


# What is shown --------------------------------------------------------------------------------------------------------


def test_an_application_is_shown_with_everything_that_is_known(history: HistoryStore) -> None:
    first = rows(history, "applications")[0]
    assert isinstance(first, PastApplicationView)
    assert (first.partition, first.rm_id, first.application_id) == ("rm-1_default", "rm-1", "app-1")
    assert (first.groups, first.application_state, first.finished_time) == (["dev"], "Completed", NOW)
    assert first.resource_history.resource_usage == {"large": {"memory": 20}}
    assert (first.submission_time, first.start_time) == (NOW - 10 * S, NOW - 9 * S)


def test_an_allocation_that_runs_has_no_end(history: HistoryStore) -> None:
    found = [
        (one.start_time, one.finished_time, one.termination_type)
        for one in rows(history, "allocations")
        if isinstance(one, PastAllocationView)
    ]
    assert found == [(NOW, NOW + 5 * S, "STOPPED_BY_RM"), (NOW + S, 0, ""), (NOW + 2 * S, 0, "")]


def test_usage_and_gaps_are_shown(history: HistoryStore) -> None:
    queue, gap = rows(history, "queues")[0], rows(history, "gaps")[0]
    assert isinstance(queue, PastQueueView)
    assert (queue.queue_name, queue.running_apps, queue.allocated_resource) == ("root", 1, {"memory": 1})
    assert isinstance(gap, GapView)
    assert (gap.what, gap.since, gap.until, gap.missed, gap.reason) == ("events", NOW, NOW + S, None, "why")


def test_what_ran_each_minute_is_the_sum_over_partitions(backend: Backend) -> None:
    portions = [
        portion(partition=one, at_ns=NOW + minute * MINUTE, sample=sample())
        for minute in range(3)
        for one in ((DEFAULT, GPU) if minute else (DEFAULT,))
    ]
    write(backend, *portions)
    history = backend.history
    assert queries.read_minutes(history, ALL, "running") == [(NOW, 3), (NOW + MINUTE, 6), (NOW + 2 * MINUTE, 6)]
    gpu = HistoryFilter(partition="gpu")
    assert [number for _, number in queries.read_minutes(history, gpu, "allocated - released")] == [16, 16]


def test_no_more_than_a_day_of_minutes_is_shown(backend: Backend) -> None:
    many = [portion(at_ns=NOW + minute * MINUTE, sample=sample()) for minute in range(1445)]
    write(backend, *many)
    found = queries.read_minutes(backend.history, ALL, "running")
    assert (len(found), found[0][0], found[-1][0]) == (1440, NOW + 5 * MINUTE, NOW + 1444 * MINUTE)


# Which rows -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "wanted", "expected"),
    [
        ("allocations", ALL, ["a", "b", "g"]),
        ("allocations", HistoryFilter(partition="gpu"), ["g"]),
        ("allocations", HistoryFilter(partition="rm-1_gpu"), ["g"]),
        ("allocations", HistoryFilter(partition="[rm-1]gpu"), ["g"]),
        ("applications", HistoryFilter(partition="default"), ["app-1", "app-2", "app-3"]),
        ("applications", HistoryFilter(partition="default", rm="rm-2"), ["app-3"]),
        ("applications", HistoryFilter(rm="nobody"), []),
        ("allocations", HistoryFilter(queue="root.a"), ["a", "g"]),
        ("allocations", HistoryFilter(queue="root.a", subtree=True), ["a", "b", "g"]),
        ("applications", HistoryFilter(queue="root.a", subtree=True), ["app-1"]),
        ("queues", HistoryFilter(queue="root", subtree=True), ["root", "root.a"]),
        ("queues", HistoryFilter(queue="root"), ["root"]),
        ("allocations", HistoryFilter(user="eve"), ["b"]),
        ("users", HistoryFilter(user="eve"), ["eve"]),
        ("groups", HistoryFilter(group="ops"), ["ops"]),
        ("allocations", HistoryFilter(application="app-2"), ["b"]),
        ("applications", HistoryFilter(state="failed"), ["app-2"]),
        ("allocations", HistoryFilter(state="running"), ["b", "g"]),
        ("allocations", HistoryFilter(state="ended"), ["a"]),
        ("allocations", HistoryFilter(since_ns=NOW + S), ["b", "g"]),
        ("allocations", HistoryFilter(until_ns=NOW + S), ["a"]),
        ("allocations", HistoryFilter(since_ns=NOW + S, until_ns=NOW + 2 * S), ["b"]),
    ],
)
def test_rows_are_narrowed(history: HistoryStore, name: ListName, wanted: HistoryFilter, expected: list[str]) -> None:
    assert names(history, name, wanted) == expected


def test_an_unknown_partition_is_refused(history: HistoryStore) -> None:
    with refuses(404, "^Partition not found$"):
        rows(history, "queues", HistoryFilter(partition="nonsense"))


# Who may see them -----------------------------------------------------------------------------------------------------


def viewer(user: str, *groups: str, submit: str = "", admin: str = "") -> HistoryFilter:
    """Somebody with rights in the partition `default` of rm-1 only."""
    right = QueueRights(frozenset(submit.split()), frozenset(admin.split()))
    return HistoryFilter(viewer=Actor(user=user, groups=list(groups)), rights={"rm-1_default": right})


@pytest.mark.parametrize(
    ("name", "wanted", "expected"),
    [
        ("allocations", viewer("bob", submit="root"), ["a"]),
        ("allocations", viewer("carl", admin="root.a"), ["a", "b"]),
        ("allocations", viewer("bob", admin="root.a.x"), ["a", "b"]),
        ("allocations", viewer("carl", submit="root.a"), []),
        ("applications", viewer("carl", admin="root.a"), ["app-1"]),
        ("applications", viewer("carl", admin="root"), ["app-1", "app-2"]),
        ("queues", viewer("carl", submit="root.a"), ["root.a"]),
        ("queues", viewer("carl", submit="root"), ["root", "root.a"]),
        ("queues", viewer("carl"), []),
        ("users", viewer("bob"), ["bob"]),
        ("users", viewer("carl", admin="root.a"), []),
        ("users", viewer("carl", admin="root"), ["bob", "eve"]),
        ("groups", viewer("carl", "dev", "x"), ["dev"]),
        ("groups", viewer("carl"), []),
        ("groups", viewer("carl", admin="root"), ["dev", "ops"]),
        ("gaps", viewer("carl"), ["events"]),
        ("allocations", HistoryFilter(viewer=Actor(user="bob")), []),
        ("gaps", HistoryFilter(viewer=Actor(user="bob")), []),
    ],
)
def test_a_viewer_gets_what_is_theirs_and_their_queues(
    history: HistoryStore, name: ListName, wanted: HistoryFilter, expected: list[str]
) -> None:
    assert names(history, name, wanted) == expected


def test_the_case_of_a_queue_name_does_not_matter(backend: Backend) -> None:
    write(backend, portion(ended=[application("app-1", queue="Root.A.Nothing", user="eve")]))
    for admin, expected in (("root.a", ["app-1"]), ("root.an", []), ("root.b root.a root.a.nothing", ["app-1"])):
        assert names(backend.history, "applications", viewer("carl", admin=admin)) == expected


def test_an_administrator_of_the_root_sees_what_is_in_no_queue(backend: Backend) -> None:
    write(backend, portion(ended=[application("app-1", queue="", user="eve")]))
    assert names(backend.history, "applications", viewer("carl", admin="root")) == ["app-1"]
    assert names(backend.history, "applications", viewer("carl", admin="root.a")) == []


def test_rights_hold_in_their_partition_only(backend: Backend) -> None:
    write(backend, portion(began("a", user="eve")), portion(began("b", user="eve"), partition=GPU))
    rights = {
        full_name: QueueRights(frozenset(), frozenset({queue}))
        for full_name, queue in (("rm-1_default", "root.a"), ("rm-1_gpu", "root.b"))
    }
    assert names(backend.history, "allocations", HistoryFilter(viewer=Actor(user="carl"), rights=rights)) == ["a"]


# Page by page ---------------------------------------------------------------------------------------------------------

_moments = st.lists(st.integers(min_value=0, max_value=5), max_size=25)


@pytest.fixture(scope="module", params=BACKENDS)
def pages(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    with closing(BACKENDS[request.param](tmp_path_factory.mktemp("pages"))) as one:
        write(one)
        yield one


@settings(max_examples=25)
@given(times=_moments, more=_moments, limit=st.integers(min_value=1, max_value=7))
def test_page_by_page_every_row_comes_once_in_order_also_while_more_are_written(
    pages: Backend, times: list[int], more: list[int], limit: int
) -> None:
    pages.change("DELETE FROM applications")
    there = [application(f"app-{number}", NOW + at) for number, at in enumerate(times)]
    write(pages, portion(ended=there))
    expected = [one.application_id for one in sorted(there, key=lambda one: one.finished_ns)]
    seen: list[tuple[int, str]] = []
    after = ""
    while len(seen) <= len(times) + 25:  # each page could add one more
        page = queries.read_page(pages.history, "applications", ALL, limit=limit, after=after)
        assert len(page.rows) <= limit
        seen += [(one.finished_time, one.application_id) for one in page.rows if isinstance(one, PastApplicationView)]
        if not page.next:
            break
        assert len(page.rows) == limit
        after = page.next
        if more:  # later ones, and one as late as the latest
            number = len(more)
            write(pages, portion(ended=[application(f"new-{number}", NOW + 5 + more.pop())]))
    old = [name for _, name in seen if not name.startswith("new")]
    assert old == expected
    assert len(set(seen)) == len(seen)
    assert seen == sorted(seen, key=lambda one: one[0])


def test_the_last_page_has_no_cursor(history: HistoryStore) -> None:
    assert queries.read_page(history, "allocations", ALL, limit=3, after="").next == ""
    assert queries.read_page(history, "allocations", ALL, limit=2, after="").next != ""


def test_the_newest_rows_come_first_on_request(history: HistoryStore) -> None:
    forwards = names(history, "applications")
    seen: list[str] = []
    after = ""
    for _ in forwards:
        page = queries.read_page(history, "applications", HistoryFilter(newest_first=True), limit=1, after=after)
        seen += [one.application_id for one in page.rows if isinstance(one, PastApplicationView)]
        after = page.next
    assert (seen, after) == (forwards[::-1], "")


@pytest.mark.parametrize("after", ["x", "!!", "MQ", "MS4y/", "OTk5OTk5OTk5OTk5OTk5OTk5OTk5OTkuMQ", "ü"])
def test_a_malformed_cursor_is_refused(history: HistoryStore, after: str) -> None:
    with refuses(400, "^after must be the value of next in an earlier answer$"):
        queries.read_page(history, "allocations", ALL, limit=2, after=after)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> HistoryStore:
    backend = BACKENDS["sqlite"](tmp_path_factory.mktemp("plans"))
    fill(backend)
    return backend.history


def plan(history: HistoryStore, name: ListName, wanted: HistoryFilter) -> str:
    with queries.open_history(history) as reading:
        sql, values = queries.page_query(reading, name, wanted, after=AFTER)
        return "; ".join(str(row[3]) for row in reading.execute(f"EXPLAIN QUERY PLAN {sql}", (*values, 10)))


@pytest.mark.parametrize("name", list(LISTS))
@pytest.mark.parametrize("wanted", [ALL, HistoryFilter(since_ns=1, until_ns=NOW), HistoryFilter(partition="default")])
def test_no_list_is_sorted_or_searched_from_its_beginning_to_be_shown(
    file: HistoryStore, name: ListName, wanted: HistoryFilter
) -> None:
    steps = plan(file, name, wanted)
    assert f"SEARCH entry USING INDEX {name}_at (at>" in steps
    assert "TEMP B-TREE" not in steps
    steps = plan(file, name, replace(wanted, newest_first=True))
    assert f"SEARCH entry USING INDEX {name}_at (at" in steps
    assert "TEMP B-TREE" not in steps


@pytest.mark.parametrize("name", ["applications", "allocations"])
def test_what_there_is_of_one_application_is_found_by_its_name(file: HistoryStore, name: ListName) -> None:
    assert "(application=?" in plan(file, name, HistoryFilter(application="app-1", since_ns=1))


# What goes wrong ------------------------------------------------------------------------------------------------------


def test_a_question_that_takes_too_long_is_given_up(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    write(backend, portion(*(began(f"k{number}", NOW + number) for number in range(20_000))))
    monkeypatch.setattr(queries, "SECONDS_MAX", 0.0)
    with refuses(503, "^This takes longer than 0 s: ask for less time, with since and until$"):
        queries.read_page(backend.history, "allocations", HistoryFilter(user="nobody"), limit=1, after="")
    monkeypatch.setattr(queries, "SECONDS_MAX", 5.0)
    assert names(backend.history, "allocations", HistoryFilter(application="none")) == []


def test_a_missing_file_and_one_that_is_no_database_are_refused(tmp_path: Path) -> None:
    with refuses(503, "^The history cannot be read: unable to open"):
        rows(SqliteHistory(tmp_path / "none.sqlite"), "queues")
    other = tmp_path / "other.sqlite"
    other.write_bytes(b"text" * 1000)
    with refuses(503, "^The history cannot be read: .*not a database"):
        rows(SqliteHistory(other), "queues")


SOMEWHERE = SqliteHistory(Path("/somewhere"))


@dataclass
class Kept:
    history: HistoryStore = SOMEWHERE
    problem: str = ""


def refused(past: HistoryReader, question: Callable[[HistoryStore], object]) -> tuple[int, str]:
    with pytest.raises(RequestError) as caught:
        asyncio.run(past.read(question))
    return caught.value.status, caught.value.text


def test_a_question_is_answered_in_another_thread() -> None:
    past = HistoryReader(Kept())
    assert asyncio.run(past.read(lambda history: (history, threading.current_thread() is threading.main_thread()))) == (
        SOMEWHERE,
        False,
    )
    past.close()


def test_while_it_is_not_kept_nothing_is_read() -> None:
    assert refused(HistoryReader(Kept(problem="disk full")), lambda _: 1) == (503, "There is no history: disk full")


def test_more_questions_than_can_wait_are_refused_and_the_others_answered() -> None:
    past, go_on = HistoryReader(Kept()), threading.Event()
    bound = READERS_MAX + WAITING_MAX

    async def ask() -> list[int]:
        waiting = [asyncio.ensure_future(past.read(lambda _: int(go_on.wait(20)))) for _ in range(bound)]
        await asyncio.sleep(0)
        with pytest.raises(RequestError, match=f"{bound} queries about the history are waiting already"):
            await past.read(lambda _: 0)
        go_on.set()
        answered = await asyncio.gather(*waiting)
        return [*answered, await past.read(lambda _: 7)]

    assert asyncio.run(ask()) == [1] * bound + [7]
    past.close()
