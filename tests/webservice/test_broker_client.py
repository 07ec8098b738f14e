"""Each request to the broker gets its own answer, or an error in time."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.webservice.fake_broker import Behaviour, FakeBroker, broker, helpful, reply
from yunishard.broker.config_rollout import ROLLOUT_MAX_S
from yunishard.common.messages.control_messages import Hello
from yunishard.common.messages.kinds import Header
from yunishard.common.messages.query_messages import Actor, Answer, ChangeConfig, KillApplication, Query, ReadConfig
from yunishard.common.messages.rm_messages import Refused
from yunishard.common.messages.wire import BrokerAddress, Incoming, Outgoing, decode_body
from yunishard.webservice import broker_client
from yunishard.webservice.broker_client import ANSWER_MAX_S, CHANGE_MAX_S, CHANGES_MAX, QUERIES_MAX, BrokerClient
from yunishard.webservice.views import RequestError

Talk = Callable[[BrokerClient, FakeBroker], Awaitable[None]]


def talk(
    talking: Talk,
    behaviour: Behaviour = helpful,
    *,
    answer_max_s: float = 5.0,
    change_max_s: float = 5.0,
    heartbeat_s: float = 1.0,
    keys: Path | None = None,
) -> None:
    """Run a conversation over real sockets."""

    async def run() -> None:
        async with broker(behaviour) as fake:
            address = BrokerAddress(fake.address)
            link = BrokerClient(address, name="webservice/1", heartbeat_s=heartbeat_s, keys=keys)
            running = asyncio.create_task(link.run())
            try:
                await talking(link, fake)
            finally:
                running.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await running

    with patch.multiple(broker_client, ANSWER_MAX_S=answer_max_s, CHANGE_MAX_S=change_max_s):
        asyncio.run(run())


def test_it_asks_under_its_name() -> None:
    async def talking(link: BrokerClient, fake: FakeBroker) -> None:
        known = await link.partitions()
        assert [entry.full_name for entry in known.partitions] == ["rm-1_default"]
        assert [incoming.header.kind for incoming in fake.heard] == ["ListPartitions"]
        assert {incoming.source for incoming in fake.heard} == {"webservice/1"}

    talk(talking)


def test_each_question_gets_its_own_answer_in_whatever_order_they_come() -> None:
    held: list[Outgoing] = []

    def backwards(incoming: Incoming) -> list[Outgoing]:
        if incoming.header.kind != "Query":
            return []
        held.append(reply(incoming, Answer(status=200, body=incoming.header.partition.encode())))
        return held[::-1] if len(held) == 3 else []

    async def talking(link: BrokerClient, _: FakeBroker) -> None:
        answers = await asyncio.gather(*(link.ask(name, Query(what="nodes")) for name in ("a", "b", "c")))
        assert [answer.body for answer in answers] == [b"a", b"b", b"c"]

    talk(talking, backwards)


def test_more_questions_than_may_be_on_their_way_are_all_answered() -> None:
    async def talking(link: BrokerClient, _: FakeBroker) -> None:
        asked = [link.ask("p", Query(what="nodes")) for _ in range(QUERIES_MAX * 2)]
        assert {answer.body for answer in await asyncio.gather(*asked)} == {b'["p"]\n'}

    talk(talking)


def test_a_question_without_an_answer_is_given_up() -> None:
    async def talking(link: BrokerClient, _: FakeBroker) -> None:
        with pytest.raises(RequestError, match=r"Partition p did not answer within 0\.01 s") as given_up:
            await link.ask("p", Query(what="nodes"))
        assert given_up.value.status == 503
        with pytest.raises(RequestError, match=r"The broker did not answer within 0\.01 s"):
            await link.partitions()

    talk(talking, lambda _: [], answer_max_s=0.01)


def test_queries_are_repeated_to_a_restarted_broker_and_changes_are_not() -> None:
    def forgetful(incoming: Incoming) -> list[Outgoing]:
        """It answers what it hears a second time."""
        heard[incoming.header.ref] = heard.get(incoming.header.ref, 0) + 1
        return [reply(incoming, Answer(status=200, body=b"[]"))] if heard[incoming.header.ref] > 1 else []

    heard: dict[str, int] = {}

    async def talking(link: BrokerClient, fake: FakeBroker) -> None:
        question = asyncio.create_task(link.ask("rm-1_default", Query(what="nodes")))
        change = asyncio.create_task(link.change(KillApplication(application_id="a", actor=Actor(user="op"))))
        fake.incarnations.append("2")
        assert (await question).status == 200
        assert sorted(heard.values()) == [1, 2]
        change.cancel()

    talk(talking, forgetful, heartbeat_s=0.01)


def test_queries_are_repeated_on_a_new_connection_and_changes_are_not(tmp_path: Path) -> None:
    """With keys, nothing is queued for a connection that is not established yet."""

    async def talking(link: BrokerClient, fake: FakeBroker) -> None:
        question = asyncio.create_task(link.ask("rm-1_default", Query(what="nodes")))
        change = asyncio.create_task(link.change(KillApplication(application_id="a", actor=Actor(user="op"))))
        assert (await question).status == 200
        assert [one.header.kind for one in fake.heard] == ["Query"]
        change.cancel()

    talk(talking, keys=tmp_path)


def test_an_answer_after_the_timeout_is_ignored() -> None:
    def twice_and_stray(incoming: Incoming) -> list[Outgoing]:
        stray = Outgoing(incoming.source, Header(kind="Answer", ref="0-1"), b"")
        return [stray, *helpful(incoming), *helpful(incoming)]

    async def talking(link: BrokerClient, _: FakeBroker) -> None:
        for what in ("nodes", "queues", "nodes"):
            assert (await link.ask("p", Query(what=what))).status == 200

    talk(talking, twice_and_stray)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (lambda d: reply(d, Refused(code="gone", reason="no worker")), "Partition p cannot answer: no worker"),
        (lambda d: reply(d, Hello(role="x")), "Partition p answered what cannot be read: Hello instead of Answer"),
        (
            lambda d: Outgoing(d.source, Header(kind="Answer", ref=d.header.ref), b"\xc1"),
            "Partition p answered what cannot be read: Answer: ",
        ),
    ],
)
def test_a_malformed_answer_is_an_error(answer: Callable[[Incoming], Outgoing], text: str) -> None:
    async def talking(link: BrokerClient, _: FakeBroker) -> None:
        with pytest.raises(RequestError) as told:
            await link.ask("p", Query(what="nodes"))
        assert told.value.text.startswith(text)

    talk(talking, lambda incoming: [answer(incoming)] if incoming.header.ref else [])


CHANGE = ChangeConfig(config="", author="alice")
KILL = KillApplication(application_id="a", actor=Actor(user="alice"))


def obliging(incoming: Incoming) -> list[Outgoing]:
    header = incoming.header
    return [reply(incoming, Answer(status=200, body=f"{header.kind} {header.rm}{header.partition}".encode()))]


def test_questions_about_a_configuration_name_its_manager() -> None:
    async def talking(link: BrokerClient, fake: FakeBroker) -> None:
        assert (await link.read("rm-1", ReadConfig(what="version", version=3))).body == b"ReadConfig rm-1"
        assert decode_body(ReadConfig, fake.heard[-1].body) == ReadConfig(what="version", version=3)
        assert (await link.change(CHANGE, rm="rm-1")).body == b"ChangeConfig rm-1"
        assert (await link.change(KILL, partition="p")).body == b"KillApplication p"

    talk(talking, obliging)


def test_a_change_may_take_longer_than_a_question() -> None:
    assert CHANGE_MAX_S > ROLLOUT_MAX_S > ANSWER_MAX_S


def test_a_change_without_an_answer_has_an_unknown_outcome() -> None:
    async def talking(link: BrokerClient, _: FakeBroker) -> None:
        with pytest.raises(RequestError) as told:
            await link.change(CHANGE, rm="rm-1")
        assert told.value.status == 503
        assert told.value.text == (
            "The broker did not answer within 0.01 s. Whether the change was made is not known: read the configuration"
            " before trying again"
        )
        with pytest.raises(RequestError, match=r"^Partition p did not .* read the application before trying again$"):
            await link.change(KILL, partition="p")

    talk(talking, lambda _: [], change_max_s=0.01)


def test_no_more_changes_wait_than_may() -> None:
    held: list[Outgoing] = []

    def patient(incoming: Incoming) -> list[Outgoing]:
        held.extend(obliging(incoming))
        return [held.pop() for _ in range(len(held))] if incoming.header.kind == "Query" else []

    async def talking(link: BrokerClient, _: FakeBroker) -> None:
        waiting = [asyncio.create_task(link.change(KILL, partition="p")) for _ in range(CHANGES_MAX)]
        await asyncio.sleep(0)
        with pytest.raises(RequestError, match=f"{CHANGES_MAX} changes are waiting") as told:
            await link.change(KILL, partition="p")
        assert told.value.status == 503
        await link.ask("p", Query(what="nodes"))  # questions have places of their own
        assert {answer.status for answer in await asyncio.gather(*waiting)} == {200}
        again = asyncio.create_task(link.change(KILL, partition="p"))
        await asyncio.sleep(0)
        await link.ask("p", Query(what="nodes"))
        assert (await again).status == 200

    talk(talking, patient)
