"""The answer to a front end waits until the RM's proxy knows of new partitions."""

from broker.state import ECHO_MAX_S
from common.config.model import compute_checksum
from common.control_messages import Echo
from common.wire import Outgoing
from tests.broker.house import GPU, PROXY, House, kinds, registered
from tests.machines import ONE_QUEUE, two_partitions

WEB = "webservice"


def silent() -> House:
    """One RM with a partition, whose proxy is told to add another and does not say that it has heard."""
    house = registered()
    house.echoes = False
    return house


def added(house: House) -> list[Outgoing]:
    """What is sent at the last vote on a partition more."""
    return house.agree([*house.change(two_partitions()), *house.hello(GPU)])


def test_the_rms_proxy_is_told_before_the_front_end_has_its_answer() -> None:
    house = silent()
    sends = kinds(added(house))
    assert (WEB, "Answer") not in sends
    assert sends.index((PROXY, "ConfigurationUpdated")) < sends.index((PROXY, "Echo"))
    assert kinds(house.hear(PROXY, Echo(), rm="", session="", ref="1")) == [(WEB, "Answer")]
    assert house.hear(PROXY, Echo(), rm="", session="", ref="1") == []


def test_a_proxy_that_is_gone_holds_up_nothing_for_long() -> None:
    house = silent()
    added(house)
    assert house.switch.deadline == house.now + ECHO_MAX_S
    assert kinds(house.switch.tick(house.now + ECHO_MAX_S)) == [(WEB, "Answer")]
    assert house.switch.tick(house.now + 2 * ECHO_MAX_S) == []


def test_without_new_partitions_nothing_waits() -> None:
    house = silent()
    other = ONE_QUEUE.replace("name: batch", "name: other")
    assert compute_checksum(other) != compute_checksum(ONE_QUEUE)
    assert (WEB, "Answer") in kinds(house.agree(house.change(other)))
