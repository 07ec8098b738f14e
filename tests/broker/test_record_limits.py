"""The limits of the record in the broker's machine: what is refused, and what is removed, one message at a time."""

import dataclasses

import pytest

from tests.broker.bench import PATIENT, PROXY, WEB, BrokerBench, answers, kinds, registered
from tests.machines import ONE_QUEUE, RM, SESSION, said
from yunishard.broker import config_versions
from yunishard.broker.config_versions import ENTRY_BYTES, RMS_MAX
from yunishard.broker.rm_records import SETTINGS_BYTES_MAX
from yunishard.common.config.model import compute_checksum
from yunishard.common.messages.control_messages import RemoveVersions, VersionsRemoved
from yunishard.common.messages.rm_messages import Leave, Refused, RegisterResourceManager
from yunishard.common.messages.wire import decode_body
from yunishard.common.names import RECORD

KIB = 1 << 10
SMALL = dataclasses.replace(PATIENT, record_max_bytes=80 * KIB)


def text(size: int, word: str = "a") -> str:
    """A configuration of about so many bytes. The comment is short lines, as one long line would be refused."""
    return ONE_QUEUE + f"# {word * 60}\n" * (size // 63)


def test_versions_above_the_limit_are_removed_once_a_later_one_is_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_versions, "VERSIONS_MAX", 2)
    bench = registered()
    for number in range(4):
        bench.agree(bench.change(text(KIB, str(number))))
    assert bench.removed == [(RM, 1), (RM, 2), (RM, 3)]
    assert [one.number for one in bench.broker.state.versions.history(RM).entries] == [4, 5]


def test_versions_of_an_rm_that_has_left_count_as_those_of_a_former_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_versions, "FORMER_BYTES_MAX", 2 * ENTRY_BYTES + 2 * len(ONE_QUEUE))
    bench = BrokerBench()
    for number in range(4):
        bench.now += 1
        bench.register(rm=f"rm-{number}", session=f"s-{number}")
    assert bench.removed == []
    for number in (3, 1, 0, 2):
        bench.hear(PROXY, Leave(), rm=f"rm-{number}", session=f"s-{number}", ref="leave")
    assert bench.removed == [("rm-0", 1), ("rm-1", 1)], "those whose configurations changed first"


def test_a_start_removes_what_is_above_the_limits_one_message_at_a_time() -> None:
    bench = BrokerBench()
    for number in range(RMS_MAX + 3):
        version = bench.broker.state.versions.build_next(
            f"rm-{number}",
            ONE_QUEUE,
            checksum=compute_checksum(ONE_QUEUE),
            at_ns=number,
            author="",
            origin="update",
            base="",
        )
        bench.broker.state.versions.add_version(f"rm-{number}", version)
    bench.begin_again()
    sends = bench.broker.tick(bench.now)
    for number in range(3):
        [one] = [one for one in sends if one.header.kind == "RemoveVersions"]
        assert (one.to, one.header.rm, decode_body(RemoveVersions, one.body).up_to) == (RECORD, f"rm-{number}", 1)
        sends = bench.broker.handle(bench.from_peer(RECORD, VersionsRemoved(problem="x"), session="", rm=""), bench.now)
    assert sends == []


def test_a_configuration_for_which_the_record_has_no_room_is_refused_with_the_reason() -> None:
    bench = BrokerBench(settings=SMALL)
    bench.register(text(30 * KIB))
    bench.register(text(30 * KIB), rm="rm-2", session="another")
    reason = (
        "the broker's record has no room for a configuration of 30.1 KiB: it would be 13.2 KiB above 80 KiB, the"
        " limit of the setting record-max; use shorter configurations, end RMs that are not needed, or raise the limit"
    )
    [(status, body)] = answers(bench.change(text(30 * KIB, "b")))
    assert (status, body) == (507, reason)
    [refusal] = said(bench.call(text(30 * KIB), rm="rm-3", session="third"))
    assert isinstance(refusal, Refused)
    assert refusal.reason == f"registration of RM failed: {reason}"
    bench.agree(bench.change(text(8 * KIB, "b")))
    assert bench.text() == text(8 * KIB, "b")
    assert bench.removed == []


def test_former_rms_give_room_to_others() -> None:
    bench = BrokerBench(settings=SMALL)
    for number in range(5):
        bench.now += 1
        session = f"s-{number}"
        assert kinds(bench.register(text(30 * KIB), rm=f"rm-{number}", session=session))[-1] == (PROXY, "Registered")
        bench.hear(PROXY, Leave(), rm=f"rm-{number}", session=session, ref="leave")
    assert bench.removed == [("rm-0", 1), ("rm-1", 1), ("rm-2", 1)]


def test_an_rm_that_registers_again_while_its_versions_are_removed_starts_anew() -> None:
    bench = BrokerBench(settings=SMALL)
    bench.register(text(30 * KIB))
    bench.hear(PROXY, Leave(), session=SESSION, ref="leave")
    bench.register(text(60 * KIB), rm="rm-2", session="another")
    assert bench.removed == [(RM, 1)]
    bench.hear(PROXY, Leave(), rm="rm-2", session="another", ref="leave")
    bench.register(text(30 * KIB), session="again")
    assert bench.record[-1].number == 1


def test_rms_without_partitions_have_a_limit_too() -> None:
    bench = BrokerBench(settings=dataclasses.replace(PATIENT, partitions_max=2))
    for number in range(2):
        assert kinds(bench.call("partitions: []", rm=f"rm-{number}"))[-1] == (PROXY, "Registered")
    [refusal] = said(bench.call("partitions: []", rm="rm-2"))
    assert isinstance(refusal, Refused)
    assert refusal.reason.endswith("2 RMs are registered already, the limit of the setting partitions-max")
    assert kinds(bench.call("partitions: []", rm="rm-0", session="again"))[-1] == (PROXY, "Registered")
    assert WEB not in [to for to, _ in kinds(bench.hear(PROXY, Leave(), rm="rm-1", ref="leave"))]


def test_settings_of_an_rm_have_a_limit_as_they_are_in_its_record() -> None:
    bench = registered()
    large = {"a": "x" * SETTINGS_BYTES_MAX}
    request = RegisterResourceManager(rm_id="rm-2", config=ONE_QUEUE, extra_config=large)
    told = said(bench.hear(PROXY, request, rm="rm-2", session="another", ref="call"))
    told += said(bench.update(ONE_QUEUE, **large))
    reason = f"the RM's settings, build information and capabilities have more than {SETTINGS_BYTES_MAX} bytes"
    assert [one.reason for one in told if isinstance(one, Refused)] == [
        f"registration of RM failed: {reason}",
        f"update of configuration failed: {reason}",
    ]
    assert bench.facts[RM].extra == {}
    almost = {"a": "x" * (SETTINGS_BYTES_MAX - 100)}
    bench.update(ONE_QUEUE, **almost)
    assert bench.facts[RM].extra == almost
