"""Configuration versions, and the echo barrier."""

import pytest

from broker.state import ECHO_MAX_S, RMS_MAX, VERSIONS_MAX, ConfigVersions
from common.config.model import compute_checksum
from common.control_messages import ConfigVersion, Echo
from common.wire import Outgoing
from tests.broker.bench import GPU, PROXY, BrokerBench, kinds, registered
from tests.machines import ONE_QUEUE, RM, two_partitions

OWN, CHANGED, OTHER = "own", "changed", "other"


def added(versions: ConfigVersions, text: str, *, base: str, rm: str = RM, origin: str = "api") -> ConfigVersion:
    version = versions.build_next(rm, text, at_ns=7, author="alice", origin=origin, base=compute_checksum(base))
    versions.add_version(rm, version)
    return version


def test_an_rm_that_is_new_gets_what_its_owner_has() -> None:
    versions = ConfigVersions()
    assert versions.choose_text(RM, OWN) == OWN
    assert versions.history(RM).latest is None


@pytest.mark.parametrize(
    ("origins", "expected"),
    [
        ([], False),
        (["file"], True),
        (["registration", "file", "api", "rollback to 1"], True),
        (["file", "registration", "api"], False),
        (["file", "update"], False),
        (["registration", *["api"] * VERSIONS_MAX], True),
    ],
)
def test_the_latest_version_is_from_the_file_if_its_owner_s_was_or_nothing_says_otherwise(
    origins: list[str], expected: bool
) -> None:
    versions = ConfigVersions()
    for origin in origins:
        added(versions, OWN, base=OWN, origin=origin)
    assert versions.history(RM).from_file == expected


def test_versions_count_from_one_and_are_remembered_without_their_text() -> None:
    versions = ConfigVersions()
    assert added(versions, OWN, base=OWN).number == 1
    second = added(versions, CHANGED, base=OWN)
    assert second == ConfigVersion(
        number=2,
        checksum=compute_checksum(CHANGED),
        at_ns=7,
        author="alice",
        origin="api",
        base=compute_checksum(OWN),
        config=CHANGED,
    )
    assert versions.history(RM).latest == second
    assert [one.config for one in versions.history(RM).entries] == ["", CHANGED]


def test_a_version_that_was_not_added_does_not_count() -> None:
    versions = ConfigVersions()
    for _ in range(2):
        assert versions.build_next(RM, OWN, at_ns=7, author="", origin="api", base="").number == 1
    assert versions.choose_text(RM, OTHER) == OTHER


def test_what_was_changed_on_top_of_the_owners_text_holds_until_the_owner_has_another() -> None:
    versions = ConfigVersions()
    added(versions, OWN, base=OWN, origin="registration")
    added(versions, CHANGED, base=OWN)
    assert [versions.choose_text(RM, text) for text in (OWN, OWN, OTHER)] == [CHANGED, CHANGED, OTHER]
    added(versions, OTHER, base=OTHER, origin="registration")
    assert versions.choose_text(RM, OWN) == OWN


def test_changes_of_one_rm_are_nothing_to_another() -> None:
    versions = ConfigVersions()
    added(versions, CHANGED, base=OWN)
    assert versions.choose_text("rm-2", OWN) == OWN


def test_the_owner_may_come_to_have_what_is_in_force_already() -> None:
    versions = ConfigVersions()
    assert not versions.rebase(RM, compute_checksum(OWN))
    added(versions, CHANGED, base=OWN)
    assert not versions.rebase(RM, compute_checksum(OWN))
    assert versions.rebase(RM, compute_checksum(CHANGED))
    assert [versions.choose_text(RM, text) for text in (OWN, CHANGED)] == [OWN, CHANGED]


def test_the_oldest_version_is_forgotten_first_and_numbers_go_on() -> None:
    versions = ConfigVersions()
    for number in range(VERSIONS_MAX + 3):
        added(versions, str(number), base=OWN)
    numbers = [entry.number for entry in versions.history(RM).entries]
    assert (len(numbers), numbers[0], numbers[-1]) == (VERSIONS_MAX, 4, VERSIONS_MAX + 3)


@pytest.mark.parametrize("again", [False, True])
def test_the_rm_that_was_first_known_is_forgotten_first(again: bool) -> None:
    versions = ConfigVersions()
    for number in range(RMS_MAX):
        added(versions, CHANGED, base=OWN, rm=f"rm-{number}")
    if again:
        added(versions, OTHER, base=OWN, rm="rm-0")
    added(versions, CHANGED, base=OWN, rm="one-more")
    assert [versions.choose_text(rm, OWN) for rm in ("rm-0", "rm-1", "one-more")] == [OWN, CHANGED, CHANGED]


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
