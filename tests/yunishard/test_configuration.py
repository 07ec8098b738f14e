"""Another configuration, asked for by the resource manager or given to it by somebody else."""

import asyncio

import pytest

from tests.yunishard.fake_core import PARTITION, FakeCore, Kept, allocated, is_waiting, play, taken
from yunishard.common.config.model import compute_checksum
from yunishard.common.messages.rm_messages import (
    ConfigurationUpdated,
    EventRecord,
    EventResponse,
    PartitionRestarted,
    Refused,
    Registered,
    RegisterResourceManager,
    Resume,
    UpdateConfiguration,
)
from yunishard.sdk.exceptions import ConfigurationRefused, OutcomeUnknown, SessionLost
from yunishard.sdk.items import Callbacks, Result

TEXT = "partitions: []"
OTHERS = ConfigurationUpdated(checksum="C", partitions=["rm-1_a", "rm-1_b"])


def test_a_change_is_answered_and_the_partitions_follow() -> None:
    async def story() -> None:
        async with FakeCore() as core, await core.registers() as rm:
            change = asyncio.create_task(rm.update_configuration(TEXT, extra_config={"log.level": "debug"}))
            header, message = await core.hears(UpdateConfiguration)
            assert message == UpdateConfiguration(
                rm_id="rm-1", policy_group="queues", config=TEXT, extra_config={"log.level": "debug"}
            )
            await core.says(OTHERS, partition="", ref=header.ref)
            assert await change == OTHERS
            assert rm.partitions == ("rm-1_a", "rm-1_b")

    play(story)


def test_settings_that_are_not_mentioned_stay() -> None:
    async def story() -> None:
        async with FakeCore() as core:
            connecting = asyncio.create_task(
                Kept.connect(core.address, rm_id="rm-1", extra_config={"event.maxStreams": "1"})
            )
            await core.hears(RegisterResourceManager)
            await core.says(Registered(partitions=[PARTITION]), partition="")
            async with await connecting as rm:
                for given, sent in ((None, {"event.maxStreams": "1"}), ({"x": "y"}, {"x": "y"}), (None, {"x": "y"})):
                    change = asyncio.create_task(rm.update_configuration(TEXT, extra_config=given))
                    header, message = await core.hears(UpdateConfiguration)
                    assert isinstance(message, UpdateConfiguration)
                    assert message.extra_config == sent
                    await core.says(OTHERS, partition="", ref=header.ref)
                    await change

    play(story)


def test_a_refusal_is_raised_with_its_code() -> None:
    async def story() -> None:
        async with FakeCore() as core, await core.registers() as rm:
            change = asyncio.create_task(rm.update_configuration("nonsense"))
            header, _ = await core.hears(UpdateConfiguration)
            await core.says(Refused(code="configuration", reason="line 1: no map"), partition="", ref=header.ref)
            with pytest.raises(ConfigurationRefused, match="line 1: no map") as refused:
                await change
            assert refused.value.code == "configuration"
            assert rm.partitions == (PARTITION,)

    play(story)


def test_two_changes_at_once_hear_their_own_answers() -> None:
    async def story() -> None:
        async with FakeCore() as core, await core.registers() as rm:
            first, second = (asyncio.create_task(rm.update_configuration(text)) for text in ("1", "2"))
            one, _ = await core.hears(UpdateConfiguration)
            two, _ = await core.hears(UpdateConfiguration)
            await core.says(Refused(code="busy", reason="a change is under way"), partition="", ref=two.ref)
            await core.says(OTHERS, partition="", ref=one.ref)
            assert await first == OTHERS
            with pytest.raises(ConfigurationRefused, match="under way"):
                await second

    play(story)


def test_a_break_before_the_answer_leaves_the_outcome_unknown_and_nothing_is_sent_again() -> None:
    async def story() -> None:
        async with FakeCore() as core:
            rm = await core.registers()
            change = asyncio.create_task(rm.update_configuration(TEXT))
            header, _ = await core.hears(UpdateConfiguration)
        async with FakeCore(core.address) as again, rm:
            await again.hears(Resume)
            await again.says(Registered(partitions=[PARTITION]), partition="")
            with pytest.raises(OutcomeUnknown, match="check which configuration is in force"):
                await change
            later = asyncio.create_task(rm.update_configuration("later"))
            _, message = await again.hears(UpdateConfiguration)
            assert isinstance(message, UpdateConfiguration)
            assert message.config == "later"
            await again.says(OTHERS, partition="", ref=header.ref)  # the answer comes after all
            assert await taken(rm.results()) == Result("", OTHERS)
            later.cancel()

    play(story)


def test_a_refusal_that_comes_while_the_session_is_resumed_does_not_end_it() -> None:
    async def story() -> None:
        async with FakeCore() as core:
            rm = await core.registers()
            change = asyncio.create_task(rm.update_configuration(TEXT))
            header, _ = await core.hears(UpdateConfiguration)
        async with FakeCore(core.address) as again, rm:
            await again.hears(Resume)
            refusal = Refused(code="configuration", reason="no")
            await again.says(refusal, partition="", ref=header.ref)
            await again.says(Registered(partitions=[PARTITION]), partition="")
            with pytest.raises(ConfigurationRefused, match="no"):
                await change
            await again.says(allocated(1), seq=1)
            assert await taken(rm.results()) == Result(PARTITION, allocated(1))

    play(story)


def test_after_a_break_the_checksum_says_that_a_change_was_made() -> None:
    async def story() -> None:
        async with FakeCore() as core:
            connecting = asyncio.create_task(Kept.connect(core.address, rm_id="rm-1"))
            await core.hears(RegisterResourceManager)
            await core.says(Registered(partitions=[PARTITION], checksum="OLD"), partition="")
            rm = await connecting
            change = asyncio.create_task(rm.update_configuration(TEXT))
            await core.hears(UpdateConfiguration)
        async with FakeCore(core.address) as again, rm:
            await again.hears(Resume)
            await again.says(Registered(partitions=["rm-1_new"], checksum=compute_checksum(TEXT)), partition="")
            assert await change == ConfigurationUpdated(checksum=compute_checksum(TEXT), partitions=["rm-1_new"])

    play(story)


def test_what_others_changed_during_a_break_is_told_afterwards() -> None:
    async def story() -> None:
        async with FakeCore() as core:
            connecting = asyncio.create_task(Kept.connect(core.address, rm_id="rm-1"))
            await core.hears(RegisterResourceManager)
            await core.says(Registered(partitions=[PARTITION], checksum="OLD"), partition="")
            rm = await connecting
        for round_, (checksum, told) in enumerate((("OLD", False), ("NEW", True), ("NEW", False))):
            async with FakeCore(core.address) as again:
                await again.hears(Resume)
                await again.says(Registered(partitions=["rm-1_new"], checksum=checksum), partition="")
                if told:
                    changed = ConfigurationUpdated(checksum="NEW", partitions=["rm-1_new"])
                    assert await taken(rm.results()) == Result("", changed)
                await again.says(PartitionRestarted(), partition=f"rm-1_{round_}")
                assert await taken(rm.results()) == Result(f"rm-1_{round_}", PartitionRestarted())
        await rm.close()

    play(story)


def test_a_change_asked_for_while_the_session_is_resumed_is_sent_once_it_is() -> None:
    async def story() -> None:
        async with FakeCore() as core:
            rm = await core.registers()
        async with FakeCore(core.address) as again, rm:
            await again.hears(Resume)
            change = asyncio.create_task(rm.update_configuration(TEXT))
            assert await is_waiting(change)  # type: ignore[arg-type] # what it would give does not matter
            await again.says(Registered(partitions=[PARTITION]), partition="")
            header, _ = await again.hears(UpdateConfiguration)
            await again.says(OTHERS, partition="", ref=header.ref)
            assert await change == OTHERS

    play(story)


def test_without_an_answer_in_time_the_outcome_is_unknown() -> None:
    async def story() -> None:
        async with FakeCore() as core, await core.registers() as rm:
            with pytest.raises(OutcomeUnknown, match=r"did not answer within 0\.01 s"):
                await rm.update_configuration(TEXT, timeout_s=0.01)

    play(story)


def test_the_end_of_the_session_ends_the_wait() -> None:
    async def story() -> None:
        async with FakeCore() as core, await core.registers() as rm:
            change = asyncio.create_task(rm.update_configuration(TEXT))
            header, _ = await core.hears(UpdateConfiguration)
            await core.says(Refused(code="unknown-session", reason="who?"), partition="", ref=header.ref)
            await core.hears(Resume)
            await core.says(Refused(code="unknown-session", reason="who?"), partition="")
            with pytest.raises(SessionLost, match="who"):
                await change

    play(story)


def test_what_somebody_else_changed_and_what_happened_is_told() -> None:
    async def story() -> None:
        async with FakeCore() as core, await core.registers() as rm:
            heard: list[object] = []
            running = asyncio.create_task(
                rm.run(Callbacks(configuration_changed=heard.append, event=heard.append, allocated=heard.append))
            )
            happened = EventRecord(type=3, object_id="root.a", message="draining", partition_name=PARTITION)
            await core.says(EventResponse(events=[happened]), seq=1)
            await core.says(OTHERS, partition="")
            await core.says(allocated(1), seq=2)
            while len(heard) < 3:  # noqa: ASYNC110 - what is waited for has no event, and a turn takes no time
                await asyncio.sleep(0)
            assert heard == [happened, OTHERS, *allocated(1).new]
            assert rm.partitions == tuple(OTHERS.partitions)
            await rm.close()
            await running

    play(story)
