""""""

import asyncio

import pytest
from msgspec.structs import replace

from tests.yunishard.fake_core import PARTITION, FakeCore, Kept, allocated, is_waiting, play, taken
from yunishard.common.messages.kinds import Command, Header
from yunishard.common.messages.rm_messages import (
    PREEMPTED_BY_SCHEDULER,
    AcceptedApplication,
    AcceptedNode,
    Ack,
    Allocation,
    AllocationRelease,
    AllocationReleasesRequest,
    AllocationRequest,
    AllocationResponse,
    ApplicationRequest,
    ApplicationResponse,
    NodeRequest,
    NodeResponse,
    PartitionRestarted,
    Received,
    Refused,
    Registered,
    RegisterResourceManager,
    ReleasesIgnored,
    RemoveApplicationRequest,
    Resume,
)
from yunishard.common.messages.session import ACK_EVERY_MESSAGES, FAULTS_MAX, WINDOW_MESSAGES
from yunishard.common.messages.wire import encode_body, encode_frames
from yunishard.sdk import client
from yunishard.sdk.client import ResourceManager, _build_allocation_request, split_by_size
from yunishard.sdk.exceptions import Closed, RegistrationRefused, SessionLost, UpdateTooLarge
from yunishard.sdk.items import Callbacks, Result, application, ask, node, release
from yunishard.sdk.session import READ_AHEAD_MESSAGES

# Registration -------------------------------------------------------------------------------------------------------


def test_connecting_registers_with_everything_that_was_given() -> None:
    async def story() -> None:
        async with FakeCore() as core:
            connecting = asyncio.create_task(
                Kept.connect(
                    core.address,
                    rm_id="rm-1",
                    config="partitions: []",
                    version="3",
                    build_info={"who": "test"},
                    extra_config={"log.level": "INFO"},
                )
            )
            header, message = await core.hears(RegisterResourceManager)
            assert message == RegisterResourceManager(
                rm_id="rm-1",
                config="partitions: []",
                policy_group="queues",
                version="3",
                build_info={"who": "test"},
                extra_config={"log.level": "INFO"},
            )
            assert header.rm == "rm-1"
            assert header.session
            await core.says(Registered(partitions=["rm-1_default", "rm-1_gpu"]), partition="")
            async with await connecting as rm:
                assert rm.rm_id == "rm-1"
                assert rm.partitions == ("rm-1_default", "rm-1_gpu")

    play(story)


def test_a_refused_registration_says_why() -> None:
    async def story() -> None:
        async with FakeCore() as core:
            connecting = asyncio.create_task(Kept.connect(core.address, rm_id="rm-1", config="x"))
            await core.hears(RegisterResourceManager)
            await core.says(Refused(code="config", reason="x is no configuration"), partition="")
            with pytest.raises(RegistrationRefused, match="x is no configuration"):
                await connecting

    play(story)


def test_an_address_where_nothing_answers_is_named_with_what_to_do() -> None:
    async def story() -> None:
        async with FakeCore() as core:
            address = core.address
        with pytest.raises(ConnectionError, match=rf"{address}.*yunishard up"):
            await ResourceManager.connect(address, rm_id="rm-1", timeout_s=0.02)

    play(story)


def test_a_core_that_does_not_answer_is_named_with_what_to_do() -> None:
    async def story() -> None:
        async with FakeCore() as core:
            connecting = asyncio.create_task(Kept.connect(core.address, rm_id="rm-1", timeout_s=0.1))
            await core.hears(RegisterResourceManager)
            with pytest.raises(TimeoutError, match=rf"{core.address}.*log"):
                await connecting

    play(story)


def test_what_is_no_address_is_refused_with_an_example() -> None:
    async def story() -> None:
        with pytest.raises(ConnectionError, match=r"'localhost'.*tcp://"):
            await ResourceManager.connect("localhost", rm_id="rm-1")

    play(story)


# Updates ------------------------------------------------------------------------------------------------------------


def test_updates_are_split_by_partition_and_numbered_in_each() -> None:
    async def story() -> None:
        async with FakeCore() as core, await core.registers("rm-1_default", "rm-1_gpu") as rm:
            await rm.update_nodes([node("n1", {"vcore": "2"}), node("n2", {"vcore": 500}, partition="gpu")])
            await rm.update_applications(
                new=[application("app", "root.a", user="alice")],
                remove=[RemoveApplicationRequest(application_id="old")],
            )
            await rm.update_allocations(
                allocations=[ask("k1", "app", {"vcore": "1"})], releases=[release("app", "k0", partition="gpu")]
            )
            heard = [await core.hears() for _ in range(5)]
            assert [(header.kind, header.partition, header.seq) for header, _ in heard] == [
                ("NodeRequest", "rm-1_default", 1),
                ("NodeRequest", "rm-1_gpu", 1),
                ("ApplicationRequest", "rm-1_default", 2),
                ("AllocationRequest", "rm-1_default", 3),
                ("AllocationRequest", "rm-1_gpu", 2),
            ]
            assert heard[0][1] == NodeRequest(nodes=[node("n1", {"vcore": 2000})])
            assert heard[2][1] == ApplicationRequest(
                new=[application("app", "root.a", user="alice")],
                remove=[RemoveApplicationRequest(application_id="old")],
            )
            assert heard[3][1] == AllocationRequest(allocations=[ask("k1", "app", {"vcore": 1000})])

    play(story)


def test_an_update_of_nothing_says_nothing() -> None:
    async def story() -> None:
        async with FakeCore() as core, await core.registers() as rm:
            await rm.update_nodes([])
            await rm.update_nodes([node("n1")])
            header, _ = await core.hears(NodeRequest)
            assert header.seq == 1

    play(story)


@pytest.mark.parametrize("in_news", [False, True], ids=["in a message of its own", "in news that nobody takes"])
def test_an_update_waits_while_the_window_is_full_and_goes_on_when_it_is_acknowledged(in_news: bool) -> None:
    async def story() -> None:
        async with FakeCore() as core, await core.registers() as rm:
            for number in range(WINDOW_MESSAGES):
                await rm.update_nodes([node(f"n{number}")])
            late = asyncio.create_task(rm.update_nodes([node("late")]))
            assert await is_waiting(late)
            for _ in range(WINDOW_MESSAGES):
                await core.hears(NodeRequest)
            await core.says(NodeResponse() if in_news else Received(), seq=1 if in_news else 0, ack=1)
            await late
            header, message = await core.hears(NodeRequest)
            assert header.seq == WINDOW_MESSAGES + 1
            assert message == NodeRequest(nodes=[node("late")])

    play(story)


# Results ------------------------------------------------------------------------------------------------------------


def test_results_come_in_order_and_are_acknowledged_when_nothing_is_left() -> None:
    async def story() -> None:
        async with FakeCore() as core, await core.registers() as rm:
            await core.says(NodeResponse(accepted=[AcceptedNode(node_id="n1")]), seq=1)
            await core.says(ApplicationResponse(accepted=[AcceptedApplication(application_id="app")]), seq=2)
            results = rm.results()
            joined = AcceptedNode(node_id="n1", partition_name=PARTITION)
            assert await taken(results) == Result(PARTITION, NodeResponse(accepted=[joined]))
            accepted = AcceptedApplication(application_id="app", partition_name=PARTITION)
            assert (await taken(results)).news == ApplicationResponse(accepted=[accepted])
            waiting = asyncio.create_task(taken(results))
            header, _ = await core.hears(Ack)
            while header.ack < 2:
                header, _ = await core.hears(Ack)
            assert header.partition == PARTITION
            await core.says(allocated(3), seq=3)
            assert await waiting == Result(PARTITION, allocated(3))

    play(story)


def test_a_result_that_was_not_taken_is_not_acknowledged() -> None:
    async def story() -> None:
        async with FakeCore() as core, await core.registers() as rm:
            await core.says(allocated(1), seq=1)
            await core.says(allocated(2), seq=2)
            await taken(rm.results())
            await rm.update_nodes([node("n1")])
            header, _ = await core.hears(NodeRequest)
            assert header.ack <= 1

    play(story)


def test_a_consumer_that_is_never_idle_acknowledges_all_the_same() -> None:
    async def story() -> None:
        async with FakeCore() as core, await core.registers() as rm:
            for number in range(1, ACK_EVERY_MESSAGES + 2):
                await core.says(allocated(number), seq=number)
            await rm.update_nodes([node("n1")])
            await core.hears(NodeRequest)
            results = rm.results()
            while (await taken(results)).news != allocated(ACK_EVERY_MESSAGES):
                pass
            await core.says(allocated(ACK_EVERY_MESSAGES + 2), seq=ACK_EVERY_MESSAGES + 2)
            await taken(results)
            header, _ = await core.hears(Ack)
            assert header.ack <= ACK_EVERY_MESSAGES

    play(story)


def test_repeated_results_are_dropped() -> None:
    async def story() -> None:
        async with FakeCore() as core, await core.registers() as rm:
            for number in (1, 1, 2, 1, 3):
                await core.says(allocated(number), seq=number)
            results = rm.results()
            assert [(await taken(results)).news for _ in range(3)] == [allocated(number) for number in (1, 2, 3)]

    play(story)


def test_news_of_another_session_are_not_for_us() -> None:
    async def story() -> None:
        async with FakeCore() as core, await core.registers() as rm:
            await core.says(allocated(9), seq=1, session="another")
            await core.says(Refused(code="gone", reason="another"), session="another", partition="")
            await core.says(allocated(1), seq=1)
            assert (await taken(rm.results())).news == allocated(1)

    play(story)


def test_a_refused_update_is_a_result() -> None:
    async def story() -> None:
        async with FakeCore() as core, await core.registers() as rm:
            refused = Refused(code="unknown-partition", reason="there is no rm-1_x", seq=1)
            await core.says(refused, partition="rm-1_x")
            assert await taken(rm.results()) == Result("rm-1_x", replace(refused, partition_name="rm-1_x"))

    play(story)


def test_an_ignored_release_is_a_result_and_a_warning_that_does_not_repeat_itself(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story() -> None:
        async with FakeCore() as core, await core.registers() as rm:
            wrong = AllocationRelease(application_id="app", allocation_key="k9", message="unknown to application app")
            results = rm.results()
            for _ in range(3):
                await core.says(ReleasesIgnored(ignored=[wrong], more=2))
                news = (await taken(results)).news
                assert isinstance(news, ReleasesIgnored)
                assert news.ignored == [replace(wrong, partition_name=PARTITION)]

    play(story)
    (warning,) = caplog.messages
    assert warning == (
        "rm-1: release of 'k9' of application 'app' in partition rm-1_default had no effect: "
        "unknown to application app (and 2 more)"
    )


def test_what_waits_to_be_read_is_read_when_the_consumer_goes_on() -> None:
    async def story() -> None:
        async with FakeCore() as core, await core.registers() as rm:
            count = READ_AHEAD_MESSAGES + 100
            for number in range(1, count + 1):
                await core.says(allocated(number), seq=number)
            results = rm.results()
            assert [(await taken(results)).news for _ in range(count)] == [allocated(n) for n in range(1, count + 1)]

    play(story)


def test_a_second_consumer_at_the_same_time_is_refused_but_one_after_the_other_is_fine() -> None:
    async def story() -> None:
        async with FakeCore() as core, await core.registers() as rm:
            first = asyncio.create_task(taken(rm.results()))
            await asyncio.sleep(0)
            with pytest.raises(RuntimeError, match="one consumer"):
                await taken(rm.results())
            await core.says(allocated(1), seq=1)
            assert (await first).news == allocated(1)
            await core.says(allocated(2), seq=2)
            assert (await taken(rm.results())).news == allocated(2)

    play(story)


def test_results_end_and_updates_are_refused_after_close() -> None:
    async def story() -> None:
        async with FakeCore() as core:
            rm = await core.registers()
            rest = asyncio.create_task(_all_of(rm))
            await asyncio.sleep(0)
            await rm.close()
            await rm.close()
            assert await rest == []
            with pytest.raises(Closed):
                await rm.update_nodes([node("n1")])

    play(story)


async def _all_of(rm: ResourceManager) -> list[Result]:
    return [result async for result in rm.results()]


def test_closing_sends_what_was_said_last() -> None:
    async def story() -> None:
        async with FakeCore() as core:
            async with await core.registers() as rm:
                await rm.update_applications(remove=[RemoveApplicationRequest(application_id="app")])
            await core.hears(ApplicationRequest)

    play(story)


# Callbacks ----------------------------------------------------------------------------------------------------------


def test_callbacks_are_called_in_order_be_they_plain_or_async() -> None:
    async def story() -> None:
        async with FakeCore() as core, await core.registers() as rm:
            heard: list[str] = []

            async def confirm(released: AllocationRelease) -> None:
                heard.append(f"released {released.allocation_key}")
                await rm.update_allocations(releases=[released])

            callbacks = Callbacks(
                allocated=lambda allocation: heard.append(f"allocated {allocation.allocation_key}"), released=confirm
            )
            running = asyncio.create_task(rm.run(callbacks))
            preempted = release("app", "k1", partition=PARTITION, termination_type=PREEMPTED_BY_SCHEDULER)
            await core.says(allocated(1), seq=1)
            await core.says(AllocationResponse(released=[preempted]), seq=2)
            _, message = await core.hears(AllocationRequest)
            assert message == AllocationRequest(releases=AllocationReleasesRequest(allocations_to_release=[preempted]))
            assert heard == ["allocated k1", "released k1"]
            await rm.close()
            await running

    play(story)


def test_what_a_callback_raises_ends_the_run() -> None:
    async def story() -> None:
        async with FakeCore() as core, await core.registers() as rm:

            def fail(allocation: Allocation) -> None:
                raise LookupError(allocation.allocation_key)

            await core.says(allocated(1), seq=1)
            with pytest.raises(LookupError, match="k1"):
                await rm.run(Callbacks(allocated=fail))

    play(story)


ASKS = [ask(f"k{number}", "app", {"vcore": 1}) for number in range(10)]
RELEASES = [release("app", f"r{number}") for number in range(5)]


def items(command: Command) -> list[str]:
    assert isinstance(command, AllocationRequest)
    asks = [item.allocation_key for item in command.allocations]
    return asks + [item.allocation_key for item in command.releases.allocations_to_release]


def test_what_fits_stays_one_message() -> None:
    whole = AllocationRequest(allocations=ASKS, releases=AllocationReleasesRequest(allocations_to_release=RELEASES))
    assert split_by_size("f()", _build_allocation_request, ASKS, RELEASES) == [(whole, encode_body(whole))]


@pytest.mark.parametrize("bytes_max", [100, 150, 200, 400])
def test_what_does_not_fit_is_cut_in_order(bytes_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "BODY_BYTES_MAX", bytes_max)
    cut = split_by_size("f()", _build_allocation_request, ASKS, RELEASES)
    assert len(cut) > 1
    assert all(body == encode_body(command) and len(body) <= bytes_max for command, body in cut)
    assert [key for command, _ in cut for key in items(command)] == [
        *(f"k{number}" for number in range(10)),
        *(f"r{number}" for number in range(5)),
    ]


def test_no_piece_has_more_items_than_a_partition_should_take_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "ITEMS_MAX", 4)
    cut = split_by_size("f()", _build_allocation_request, ASKS, RELEASES)
    assert [len(items(command)) for command, _ in cut] == [3, 4, 4, 4]
    assert [key for command, _ in cut for key in items(command)] == [
        *(f"k{number}" for number in range(10)),
        *(f"r{number}" for number in range(5)),
    ]


def test_a_single_item_over_the_limit_is_refused_with_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "BODY_BYTES_MAX", 200)
    huge = ask("k", "app", {"vcore": 1}, tags={"blob": "x" * 1000})
    with pytest.raises(UpdateTooLarge, match=r"1\d\d\d bytes, at most 200"):
        split_by_size("f()", _build_allocation_request, [*ASKS, huge])


def test_after_a_break_the_session_is_resumed_and_nothing_is_lost_or_doubled() -> None:
    async def story() -> None:
        async with FakeCore() as core:
            rm = await core.registers()
            results = rm.results()
            await rm.update_nodes([node("n1")])
            await core.hears(NodeRequest)
            await core.says(allocated(1), seq=1)
            await taken(results)
            await core.says(allocated(2), seq=2)  # lost, or not yet taken
        await rm.update_nodes([node("n2")])  # nobody is there to hear it
        async with FakeCore(core.address) as again, rm:
            header, message = await again.hears(Resume)
            assert message == Resume(received={PARTITION: 1})
            await rm.update_nodes([node("n3")])  # must not overtake what is repeated
            await again.says(Registered(partitions=[PARTITION]), partition="")
            await again.says(allocated(2), seq=2)
            assert [(await again.hears(NodeRequest))[1] for _ in range(3)] == [
                NodeRequest(nodes=[node(name)]) for name in ("n1", "n2", "n3")
            ]
            assert (await taken(results)).news == allocated(2)
            assert header.session == again.session

    play(story)


def test_a_gap_is_mended_by_resuming() -> None:
    async def story() -> None:
        async with FakeCore() as core, await core.registers() as rm:
            await core.says(allocated(2), seq=2)
            waiting = asyncio.create_task(taken(rm.results()))
            _, message = await core.hears(Resume)
            assert message == Resume(received={PARTITION: 0})
            await core.says(allocated(2), seq=2)  # still on its way: no reason to ask twice
            await core.says(Registered(partitions=[PARTITION]), partition="")
            await core.says(allocated(1), seq=1)
            assert (await waiting).news == allocated(1)

    play(story)


def test_a_gap_that_the_core_found_is_mended_by_resuming() -> None:
    async def story() -> None:
        async with FakeCore() as core, await core.registers() as rm:
            await rm.update_nodes([node("n1")])
            await core.hears(NodeRequest)
            await core.says(Refused(code="gap", reason="2 came after 0", seq=2))
            await core.welcomes()
            header, _ = await core.hears(NodeRequest)
            assert header.seq == 1

    play(story)


def test_what_can_never_be_read_ends_the_session_after_a_few_attempts() -> None:
    async def story() -> None:
        async with FakeCore() as core, await core.registers() as rm:
            waiting = asyncio.create_task(taken(rm.results()))
            header = Header(kind="AllocationResponse", partition=PARTITION, session=core.session, seq=1)
            for _ in range(FAULTS_MAX):
                await core.sends(encode_frames(header, b"\x81\xa3new\xa1x"))
                await core.welcomes()
            await core.sends(encode_frames(header, b"\x81\xa3new\xa1x"))
            with pytest.raises(SessionLost, match=r"\$\.new"):
                await waiting

    play(story)


def test_a_session_that_the_core_forgot_is_lost_for_results_and_updates() -> None:
    async def story() -> None:
        async with FakeCore() as core:
            rm = await core.registers()
            waiting = asyncio.create_task(taken(rm.results()))
        async with FakeCore(core.address) as again, rm:
            await again.hears(Resume)
            await again.says(Refused(code="unknown-session", reason="no such session"), partition="")
            with pytest.raises(SessionLost, match=r"no such session.*connect again"):
                await waiting
            with pytest.raises(SessionLost):
                await rm.update_nodes([node("n1")])

    play(story)


def test_a_restarted_partition_is_told_and_numbered_anew() -> None:
    async def story() -> None:
        async with FakeCore() as core, await core.registers() as rm:
            results = rm.results()
            await rm.update_nodes([node("n1")])
            await core.hears(NodeRequest)
            await core.says(NodeResponse(accepted=[AcceptedNode(node_id="n1")]), seq=1, ack=1)
            await taken(results)
            await core.says(PartitionRestarted())
            assert await taken(results) == Result(PARTITION, PartitionRestarted())
            await rm.update_nodes([node("n1")])
            header, _ = await core.hears(NodeRequest)
            assert header.seq == 1
            await core.says(allocated(1), seq=1, ack=1)
            assert await taken(results) == Result(PARTITION, allocated(1))

    play(story)


def test_a_full_window_of_a_partition_that_died_holds_nobody_up() -> None:
    async def story() -> None:
        async with FakeCore() as core, await core.registers() as rm:
            for number in range(WINDOW_MESSAGES):
                await rm.update_nodes([node(f"n{number}")])
            late = asyncio.create_task(rm.update_nodes([node("late")]))
            assert await is_waiting(late)
            await core.says(PartitionRestarted())
            await late

    play(story)
