"""Rows of the history as CSV."""

import csv
import io

from yunishard.common.rest.records import GapView, PastAllocationView, PastApplicationView, PastRow
from yunishard.common.rest.views import HistoryView
from yunishard.webservice.history import queries
from yunishard.webservice.history.queries import LISTS


def table(*rows: PastRow) -> list[list[str]]:
    text = queries.encode_csv(type(rows[0]), rows).decode()
    assert text.count("\r\n") == len(rows) + 1
    return list(csv.reader(io.StringIO(text, newline="")))


def allocation(key: str) -> PastAllocationView:
    return PastAllocationView(
        partition="rm-1_default",
        allocation_key=key,
        application_id="app",
        resource={"vcore": 2, "memory": 5},
        start_time=1_800_000_000_500_000_000,
    )


def test_the_first_line_has_the_names_of_all_columns_and_each_row_all_of_them() -> None:
    names, row = table(allocation("a"))
    assert names[:4] == ["partition", "rmId", "allocationKey", "applicationID"]
    found = dict(zip(names, row, strict=True))
    assert (found["resource"], found["queueName"]) == ("memory=5 vcore=2", "")
    assert (found["startTime"], found["finishedTime"]) == ("2027-01-15T08:00:00.5Z", "")


def test_what_users_chose_never_is_a_formula() -> None:
    keys = ["=1+1", "+1", "-1", "@x", "\tx", 'plain, with "quotes"\r\nand lines']
    _, *rows = table_of(keys)
    assert rows == ["'=1+1", "'+1", "'-1", "'@x", "'\tx", 'plain, with "quotes"\r\nand lines']


def table_of(keys: list[str]) -> list[str]:
    text = queries.encode_csv(PastAllocationView, [allocation(key) for key in keys]).decode()
    return [row[2] for row in csv.reader(io.StringIO(text, newline=""))]


def test_what_was_used_is_readable() -> None:
    used = HistoryView(resource_usage={"large": {"memory": 5}}, preempted_resource={"small": {"gpu": 1}})
    one = PastApplicationView(
        partition="p",
        application_id="a",
        queue_name="root.a",
        groups=["x", "y"],
        application_state="Completed",
        finished_time=1,
        resource_history=used,
    )
    names, row = table(one)
    found = dict(zip(names, row, strict=True))
    assert found["resourceHistory"] == "resourceUsage large: memory=5; preemptedResource small: gpu=1"
    assert (found["groups"], found["allocationCount"]) == ("x;y", "0")


def test_numbers_stay_numbers() -> None:
    gap = GapView(partition="p", what="events", since=0, until=10**9, missed=-5, reason="r")
    names, row = table(gap)
    found = dict(zip(names, row, strict=True))
    assert (found["missed"], found["since"], found["until"]) == ("-5", "", "1970-01-01T00:00:01Z")


def test_every_list_can_be_shown_without_rows() -> None:
    for one in LISTS.values():
        assert queries.encode_csv(one.view, []).startswith(b"partition,rmId,")
