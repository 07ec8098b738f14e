"""The history that a worker keeps: filled by every step, asked for by a question, governed by the RM's settings."""

import json

from tests.machines import said
from tests.partition_worker.bench import NEXT, Bench, ask
from yunishard.common.messages.control_messages import Settings
from yunishard.common.messages.query_messages import Answer, Query

TRACKING = "event.trackingEnabled"
CAPACITY = "event.ringBufferCapacity"
Document = dict[str, object]


def asked(bench: Bench, **args: str) -> Answer:
    [answer] = said(bench.hear(Query(what="events", name="default", args=args)))
    assert isinstance(answer, Answer)
    return answer


def read(bench: Bench, **args: str) -> Document:
    found = json.loads(asked(bench, **args).body)
    assert isinstance(found, dict)
    return found


def about(found: Document, name: str) -> int:
    records = found["EventRecords"] or []
    assert isinstance(records, list)
    return sum(record["objectID"] == name for record in records)


def furnished() -> Bench:
    bench = Bench()
    bench.furnish()
    return bench


def test_a_history_begins_with_the_queues() -> None:
    found = read(Bench())
    assert (found["LowestID"], about(found, "root"), about(found, "root.batch")) == (0, 1, 1)


def test_commands_and_decisions_are_in_the_history() -> None:
    bench = furnished()
    bench.tell(ask("k1"))
    before = about(read(bench), "n1")
    bench.schedule()
    assert about(read(bench), "n1") == before + 1


def test_another_session_begins_another_history() -> None:
    bench = furnished()
    before = read(bench)
    assert read(bench)["InstanceUUID"] == before["InstanceUUID"]
    bench.configure(session=NEXT)
    after = read(bench)
    assert after["InstanceUUID"] != before["InstanceUUID"]
    assert (after["LowestID"], about(after, "n1")) == (0, 0)


def test_a_smaller_history_keeps_the_newest() -> None:
    bench = furnished()
    highest = read(bench)["HighestID"]
    bench.hear(Settings(values={CAPACITY: "2"}))
    found = read(bench, start="0")
    assert (found["HighestID"], found["EventRecords"]) == (highest, None)
    bench.tell(ask("k1"))
    found = read(bench)
    assert isinstance(found["HighestID"], int)
    assert found["LowestID"] == found["HighestID"] - 1


def test_a_history_that_is_larger_than_can_be_does_no_harm() -> None:
    bench = furnished()
    bench.hear(Settings(values={CAPACITY: str(2**64 - 1)}))
    assert about(read(bench), "n1") > 0


def test_without_tracking_nothing_is_added_and_with_it_again_what_comes() -> None:
    bench = furnished()
    before = read(bench)["HighestID"]
    bench.hear(Settings(values={TRACKING: "false"}))
    assert asked(bench) == Answer(status=500, body=b"Event tracking is disabled")
    bench.tell(ask("k1"))
    bench.hear(Settings(values={}))
    assert read(bench)["HighestID"] == before
    bench.tell(ask("k2"))
    assert read(bench)["HighestID"] != before
