"""The order of registration: it decides what plain partition names mean, so nothing but leaving changes it."""

import json
from contextlib import closing
from pathlib import Path

import msgspec

from tests.broker.bench import PATIENT, PROXY, WEB, BrokerBench
from tests.machines import ONE_QUEUE, SESSION, two_partitions
from yunishard.broker.config_versions import ConfigVersions
from yunishard.broker.registry import RmRecord
from yunishard.broker.rm_records import decode_record
from yunishard.broker.routing import BrokerMachine
from yunishard.broker.sqlite_store import SqliteStore
from yunishard.broker.state import BrokerState
from yunishard.common.messages.control_messages import ManagerAway, ManagerRecord
from yunishard.common.messages.query_messages import ListPartitions, PartitionList
from yunishard.common.messages.rm_messages import Leave
from yunishard.common.messages.wire import decode_body


def listed(bench: BrokerBench) -> PartitionList:
    [told] = bench.hear(WEB, ListPartitions(), ref="7", rm="", session="")
    return decode_body(PartitionList, told.body)


def order(bench: BrokerBench) -> list[str]:
    """Full names of all partitions, as they are listed."""
    return [one.full_name for one in listed(bench).partitions]


def managers(bench: BrokerBench) -> list[str]:
    """Ids of all RMs, as they are listed."""
    found = listed(bench)
    ids = [one.rm_id for one in found.managers]
    assert list(found.build_information) == ids
    return ids


def two_rms() -> BrokerBench:
    bench = BrokerBench()
    bench.register(rm="zeta")
    bench.register(rm="alpha")
    return bench


def test_rms_and_partitions_are_listed_in_the_order_of_registration() -> None:
    bench = two_rms()
    assert (managers(bench), order(bench)) == (["zeta", "alpha"], ["zeta_default", "alpha_default"])


def test_a_new_session_does_not_change_the_order() -> None:
    bench = two_rms()
    bench.now = 2.0
    bench.register(rm="zeta", session="another")
    assert (managers(bench), order(bench)) == (["zeta", "alpha"], ["zeta_default", "alpha_default"])


def test_a_restart_of_the_broker_does_not_change_the_order() -> None:
    bench = two_rms()
    bench.now = 2.0
    bench.register(rm="zeta", session="another")
    bench.begin_again()
    bench.register(rm="beta")
    assert managers(bench) == ["zeta", "alpha", "beta"]
    bench.begin_again()
    assert order(bench) == ["zeta_default", "alpha_default", "beta_default"]


def test_an_rm_that_is_away_keeps_its_place() -> None:
    bench = two_rms()
    bench.hear(PROXY, ManagerAway(), rm="zeta", session=SESSION)
    assert order(bench) == ["zeta_default", "alpha_default"]


def test_an_rm_that_has_left_is_last_when_it_registers_again() -> None:
    bench = two_rms()
    bench.hear(PROXY, Leave(), rm="zeta", session=SESSION)
    assert order(bench) == ["alpha_default"]
    bench.register(rm="zeta")
    assert (managers(bench), order(bench)) == (["alpha", "zeta"], ["alpha_default", "zeta_default"])


def test_a_partition_that_is_configured_later_comes_after_those_of_other_rms() -> None:
    bench = BrokerBench()
    bench.register(rm="zeta")
    bench.register(two_partitions(), rm="alpha")
    asked = bench.update(two_partitions(), rm="zeta")
    bench.agree([*asked, *bench.hello("zeta_gpu")])
    expected = ["zeta_default", "alpha_default", "alpha_gpu", "zeta_gpu"]
    assert (managers(bench), order(bench)) == (["zeta", "alpha"], expected)
    bench.register(two_partitions(), rm="zeta", session="another")
    assert order(bench) == expected
    bench.begin_again()
    assert order(bench) == expected


def test_partitions_that_come_together_are_listed_by_name_whatever_their_order_in_the_text() -> None:
    bench = BrokerBench()
    bench.register(two_partitions("gpu", "default"), rm="zeta")
    assert order(bench) == ["zeta_default", "zeta_gpu"]


def test_the_place_is_taken_when_the_decision_is_made_not_when_the_call_arrives() -> None:
    bench = BrokerBench()
    bench.call(rm="zeta")
    bench.call(rm="alpha")
    bench.agree(bench.hello("alpha_default"))
    bench.agree(bench.hello("zeta_default"))
    assert order(bench) == ["alpha_default", "zeta_default"]


def test_a_registration_is_recorded_once() -> None:
    bench = two_rms()
    written = bench.broker.state.counters.record_writes["durable"]
    bench.register(rm="zeta", session="another")
    assert bench.broker.state.counters.record_writes["durable"] == written + 1


def recorded(path: Path, *found: bytes) -> list[RmRecord]:
    """The facts of these RMs, as the record in this file reads them after it has written them."""
    with closing(SqliteStore(path)) as store:
        for number, facts in enumerate(found, 1):
            store.write(decode_record(facts).rm, ManagerRecord(number=number, facts=facts))
        return store.read_records()


def begun(found: list[RmRecord]) -> BrokerMachine:
    """A broker that starts with these records, and with a configuration of each RM."""
    versions = ConfigVersions()
    for one in found:
        versions.add_version(
            one.rm, versions.build_next(one.rm, ONE_QUEUE, at_ns=1, author="", origin="registration", base="")
        )
    return BrokerMachine(BrokerState(settings=PATIENT, versions=versions), now=1.0, records=found)


def without_order(rm: str, registered_ns: int) -> bytes:
    """What the release before wrote of an RM: neither `order` nor `partition_order`."""
    document = {"rm": rm, "session": "s", "registered_ns": registered_ns, "call": "c"}
    return json.dumps({**document, "leases": {f"{rm}_default": 7}}).encode()


def test_rms_recorded_by_a_release_without_an_order_are_in_that_of_their_sessions(tmp_path: Path) -> None:
    found = recorded(
        tmp_path / "record.db", without_order("alpha", 30), without_order("zeta", 10), without_order("beta", 20)
    )
    assert [one.rm for one in found] == ["zeta", "beta", "alpha"]
    broker = begun(found)
    assert [one.full_name for one in broker.registry.partition_entries()] == [
        "zeta_default",
        "beta_default",
        "alpha_default",
    ]
    sends = [decode_body(ManagerRecord, one.body) for one in broker.tick(1.0) if one.header.kind == "ManagerRecord"]
    assert {one.rm: one.order for one in (decode_record(each.facts) for each in sends)} == {
        "zeta": 1,
        "beta": 2,
        "alpha": 3,
    }


def test_rms_with_an_order_come_before_those_without(tmp_path: Path) -> None:
    bench = two_rms()
    known = [msgspec.json.encode(bench.facts[rm]) for rm in ("alpha", "zeta")]
    found = recorded(tmp_path / "record.db", without_order("older", 1), *known)
    assert [one.rm for one in found] == ["zeta", "alpha", "older"]
    broker = begun(found)
    assert sorted(broker.registry.sessions, key=lambda rm: broker.registry.sessions[rm].order) == [
        "zeta",
        "alpha",
        "older",
    ]
    assert broker.registry.next_order() == 4
