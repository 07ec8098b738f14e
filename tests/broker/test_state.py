"""The echo barrier."""

from tests.broker.bench import GPU, PROXY, BrokerBench, kinds, registered
from tests.machines import ONE_QUEUE, two_partitions
from yunishard.broker.state import ECHO_MAX_S
from yunishard.common.config.model import compute_checksum
from yunishard.common.messages.control_messages import Echo
from yunishard.common.messages.wire import Outgoing

WEB = "webservice"


def silent() -> BrokerBench:
    """One RM with a partition, whose proxy is told to add another and does not say that it has heard."""
    bench = registered()
    bench.echoes = False
    return bench


def add_partition(bench: BrokerBench) -> list[Outgoing]:
    """What is sent at the last vote on a partition more."""
    return bench.agree([*bench.change(two_partitions()), *bench.hello(GPU)])


def test_the_rms_proxy_is_told_before_the_front_end_has_its_answer() -> None:
    bench = silent()
    sends = kinds(add_partition(bench))
    assert (WEB, "Answer") not in sends
    assert sends.index((PROXY, "ConfigurationUpdated")) < sends.index((PROXY, "Echo"))
    assert kinds(bench.hear(PROXY, Echo(), rm="", session="", ref="1")) == [(WEB, "Answer")]
    assert bench.hear(PROXY, Echo(), rm="", session="", ref="1") == []


def test_a_proxy_that_is_gone_holds_up_nothing_for_long() -> None:
    bench = silent()
    add_partition(bench)
    assert bench.broker.deadline == bench.now + ECHO_MAX_S
    assert kinds(bench.broker.tick(bench.now + ECHO_MAX_S)) == [(WEB, "Answer")]
    assert bench.broker.tick(bench.now + 2 * ECHO_MAX_S) == []


def test_without_new_partitions_nothing_waits() -> None:
    bench = silent()
    other = ONE_QUEUE.replace("name: batch", "name: other")
    assert compute_checksum(other) != compute_checksum(ONE_QUEUE)
    assert (WEB, "Answer") in kinds(bench.agree(bench.change(other)))
