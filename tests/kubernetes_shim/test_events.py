import asyncio

import pytest

from tests.kubernetes_shim.fake_api import Answer, serve_fake_api
from yunishard.kubernetes_shim import events as events_module
from yunishard.kubernetes_shim.actions import EmitEvent
from yunishard.kubernetes_shim.client import KubernetesClient
from yunishard.kubernetes_shim.events import EventAggregator, EventSender, EventWrite

NOW = 1_800_000_000.25
COLLECTION = "apis/events.k8s.io/v1/events"


def make(note: str = "placed", uid: str = "u1", **changes: str) -> EmitEvent:
    fields = {"kind": "Pod", "namespace": "team", "name": "pod-1", "reason": "Scheduled", "action": "Scheduled"}
    return EmitEvent(**{**fields, **changes}, uid=uid, note=note)  # type: ignore[arg-type]


def is_new(write: EventWrite | None) -> bool:
    assert write is not None
    return not write.name


def test_an_event_has_the_fields_that_the_api_requires() -> None:
    written = EventAggregator("host-1").add(make(), NOW)
    assert written is not None
    assert written.namespace == "team"
    assert written.body == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": f"pod-1.{int(NOW * 1e6):x}0001", "namespace": "team"},
        "eventTime": "2027-01-15T08:00:00.250000Z",
        "reportingController": "yunikorn",
        "reportingInstance": "host-1",
        "action": "Scheduled",
        "reason": "Scheduled",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "namespace": "team", "name": "pod-1", "uid": "u1"},
        "note": "placed",
        "type": "Normal",
    }


def test_an_event_on_a_node_is_in_the_default_namespace() -> None:
    written = EventAggregator("host-1").add(make(kind="Node", namespace="", name="n1"), NOW)
    assert written is not None
    assert written.namespace == "default"
    assert "namespace" not in written.body["regarding"]  # type: ignore[operator]


def test_repetitions_become_a_series_whose_count_is_written_seldom() -> None:
    aggregator = EventAggregator("host-1")
    first = aggregator.add(make(), NOW)
    assert first is not None
    written = [aggregator.add(make(), NOW + second) for second in range(1, 122)]
    updates = [one for one in written if one is not None]
    assert [update.body["series"]["count"] for update in updates] == [2, 62, 122]  # type: ignore[index]
    assert {update.name for update in updates} == {first.body["metadata"]["name"]}  # type: ignore[index]
    assert is_new(aggregator.add(make(), NOW + 122 + events_module.SERIES_S))


def test_an_object_has_a_bounded_number_of_events() -> None:
    aggregator = EventAggregator("host-1")
    written = [aggregator.add(make(f"note {number}"), NOW) for number in range(events_module.BURST_PER_OBJECT + 7)]
    assert sum(one is not None for one in written) == events_module.BURST_PER_OBJECT
    assert aggregator.add(make("another object", uid="u2"), NOW) is not None
    assert aggregator.add(make("later"), NOW + events_module.REFILL_S) is not None
    assert aggregator.add(make("too early"), NOW + events_module.REFILL_S) is None


def test_what_is_kept_to_detect_repetitions_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events_module, "KNOWN_MAX", 2)
    aggregator = EventAggregator("host-1")
    for uid in ("u1", "u2", "u3"):
        assert is_new(aggregator.add(make(uid=uid), NOW))
    assert not is_new(aggregator.add(make(uid="u3"), NOW))
    assert is_new(aggregator.add(make(uid="u1"), NOW))


def test_long_notes_and_names_are_cut() -> None:
    written = EventAggregator("host-1").add(make("ä" * 2_000, name="n" * 253), NOW)
    assert written is not None
    assert len(str(written.body["note"]).encode()) <= events_module.NOTE_BYTES_MAX
    assert len(written.body["metadata"]["name"]) <= 253  # type: ignore[index]


def test_events_are_sent_and_refused_ones_are_dropped() -> None:
    async def main() -> None:
        async with serve_fake_api() as api, KubernetesClient(api.access) as client, asyncio.timeout(20):
            sender = EventSender(client, "host-1")
            task = asyncio.create_task(sender.run())
            api.answers.append(Answer("POST", "events", 403, {"reason": "Forbidden"}))
            for number in range(3):
                sender.emit(make(f"note {number}"))
            while len(api.requests) < 3:  # noqa: ASYNC110 - what is waited for has no event
                await asyncio.sleep(0.001)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert {body["note"] for body in api.objects[COLLECTION].values()} == {"note 1", "note 2"}

    asyncio.run(main())


def test_events_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(events_module, "WAITING_MAX", 2)

    async def main() -> None:
        async with serve_fake_api() as api, KubernetesClient(api.access) as client, asyncio.timeout(20):
            sender = EventSender(client, "host-1")
            for number in range(5):
                sender.emit(make(f"note {number}"))
            task = asyncio.create_task(sender.run())
            while not caplog.messages:  # noqa: ASYNC110 - what is waited for has no event
                await asyncio.sleep(0.001)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)  # else it sends with a client that is closed
            assert len(api.requests) <= 2

    asyncio.run(main())
    assert caplog.messages == ["3 events were dropped, as more than 2 waited"]
