"""The order of registration: it decides what plain partition names mean, so nothing but leaving changes it."""

from tests.broker.bench import PROXY, WEB, BrokerBench
from tests.machines import SESSION, two_partitions
from yunishard.common.messages.control_messages import ManagerAway
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
