"""An RM with several addresses: the order of attempts, their pauses, and the session at the next address."""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
import zmq

from tests.rmproxy.port import ONE, SERVER, Port
from tests.rmproxy.port import play as play_with_keys
from tests.yunishard.fake_core import PARTITION, FakeCore, Kept, allocated, play, taken, until
from yunishard.common.messages.rm_messages import (
    Goodbye,
    NodeRequest,
    Refused,
    Registered,
    RegisterResourceManager,
    Resume,
)
from yunishard.common.transport.curve_keys import KeyPair, fingerprint, read_public, write_pair
from yunishard.sdk import connection
from yunishard.sdk.client import ADDRESSES_MAX, ResourceManager
from yunishard.sdk.connection import SEVERAL_OPTIONS
from yunishard.sdk.exceptions import ConnectFailed, KeyRefused
from yunishard.sdk.items import Result, node
from yunishard.sdk.session import BACKOFF_MAX_S, JITTER, MOVE_GAP_S, SEVERAL_MAX_S, Liveness

HEARTBEAT_MS, SILENCE_MS = 100, 500
SOON_S = 15.0

# The order and the times of attempts --------------------------------------------------------------------------------


def attempts(liveness: Liveness, now: float, until: float, *, fails: bool) -> list[float]:
    """Times of all attempts; each `fails` at once, or is never answered."""
    times = []
    while (now := max(now, liveness.deadline)) <= until:
        assert liveness.next_action(now) == "reconnect"
        liveness.start_move(now)
        times.append(now)
        if fails:
            liveness.fail(now)
    return times


def opened(addresses: int) -> Liveness:
    liveness = Liveness(lambda: 0.0, addresses=addresses)
    liveness.open(1000, 3000, 0.0)
    return liveness


def test_all_other_addresses_are_tried_before_the_first_pause_and_the_pauses_double() -> None:
    liveness = opened(3)
    liveness.fail(10.0)
    assert attempts(liveness, 10.0, 16.0, fails=True) == pytest.approx(
        [10.0, 10.2, 11.2, 11.4, 11.6, 13.6, 13.8, 14.0]  # b, c; a, b, c; a, b, c
    )


@pytest.mark.parametrize("addresses", [2, 3, 7, ADDRESSES_MAX])
@pytest.mark.parametrize("fails", [True, False])
def test_attempts_go_on_for_ever_and_their_number_is_bounded(addresses: int, fails: bool) -> None:
    liveness = Liveness(lambda: 1.0, addresses=addresses)
    liveness.open(1000, 3000, 0.0)
    liveness.fail(0.0)
    times = attempts(liveness, 0.0, 3600.0, fails=fails)
    gaps = [after - before for before, after in pairwise(times)]
    assert min(gaps) >= MOVE_GAP_S - 1e-6
    longest = (1 + JITTER) * max(SEVERAL_MAX_S, BACKOFF_MAX_S / addresses)
    assert max(gaps) == pytest.approx(longest), "as long as a slow core may need"
    if not fails:
        assert times[-1] - times[-addresses] == pytest.approx((addresses - 1) * longest)


def test_a_pause_that_one_address_asks_for_does_not_delay_the_others() -> None:
    liveness = opened(2)
    liveness.pause(60.0, 5.0)
    assert (liveness.deadline, liveness.next_action(5.0)) == (5.0, "reconnect")
    liveness.start_move(5.0)
    liveness.pause(60.0, 5.1)  # all ask for it
    assert (liveness.deadline, liveness.state) == (65.1, "paused")
    liveness.fail(6.0)
    assert liveness.deadline == 65.1
    assert liveness.next_action(65.1) == "reconnect"


def test_an_open_session_begins_a_new_round() -> None:
    liveness = opened(2)
    liveness.fail(1.0)
    attempts(liveness, 1.0, 30.0, fails=True)
    liveness.open(1000, 3000, 40.0)
    liveness.fail(50.0)
    assert attempts(liveness, 50.0, 52.0, fails=True) == pytest.approx([50.0, 51.0, 51.2])


def test_a_connection_that_breaks_right_after_each_resumption_is_not_retried_in_a_loop() -> None:
    liveness, now, times = opened(2), 0.0, []
    for _ in range(10):
        liveness.open(1000, 3000, now)
        liveness.fail(now)
        now = liveness.deadline
        times.append(now)
        liveness.start_move(now)
    assert times[-1] - times[0] == pytest.approx(9 * MOVE_GAP_S)


# Registration -------------------------------------------------------------------------------------------------------


@contextmanager
def nothing_there() -> Iterator[str]:
    """An address at which connections are refused."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        yield f"tcp://127.0.0.1:{reserved.getsockname()[1]}"


@contextmanager
def never_answers() -> Iterator[str]:
    """An address that takes connections and sends nothing, as a suspended process does."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"tcp://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("first", [nothing_there, never_answers])
def test_the_next_address_is_tried_if_nothing_answers_at_the_first(first: type[contextmanager]) -> None:
    async def story() -> None:
        with first() as absent:
            async with FakeCore() as core:
                welcome = asyncio.create_task(core.welcomes())
                rm = await Kept.connect(f"{absent}, {core.address}", rm_id="rm-1", timeout_s=SOON_S)
                await welcome
                assert rm.address == core.address
                await rm.close()

    play(story)


SUSPENDED_AFTER_ONE_MESSAGE = """
import os, signal, zmq
with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
    print(socket.bind_to_random_port("tcp://127.0.0.1"), flush=True)
    socket.recv_multipart()
    os.kill(os.getpid(), signal.SIGSTOP)
"""


@contextmanager
def suspends_itself() -> Iterator[tuple[str, int]]:
    """A core that is suspended as soon as it has a message; its address and process id."""
    command = [sys.executable, "-c", SUSPENDED_AFTER_ONE_MESSAGE]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"tcp://127.0.0.1:{process.stdout.readline().strip()}", process.pid
        finally:
            process.kill()


def is_suspended(number: int) -> bool:
    return os.waitpid(number, os.WUNTRACED | os.WNOHANG) == (number, (signal.SIGSTOP << 8) | 0x7F)


def test_a_core_that_is_suspended_during_a_registration_is_left_for_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heartbeats = (zmq.HEARTBEAT_IVL, zmq.HEARTBEAT_TIMEOUT)
    soon = {option: value // 20 if option in heartbeats else value for option, value in SEVERAL_OPTIONS.items()}
    monkeypatch.setattr(connection, "SEVERAL_OPTIONS", soon)

    async def story() -> None:
        with suspends_itself() as (first, number):
            async with FakeCore() as second:
                connecting = asyncio.create_task(Kept.connect(f"{first},{second.address}", rm_id="rm-1"))
                await second.welcomes()
                await (await connecting).close()
            assert is_suspended(number)

    play(story)


def test_a_core_that_is_not_ready_is_left_for_the_next_one_at_once() -> None:
    async def story() -> None:
        async with FakeCore() as first, FakeCore() as second:
            connecting = asyncio.create_task(Kept.connect(f"{first.address},{second.address}", rm_id="rm-1"))
            header, _ = await first.hears(RegisterResourceManager)
            await first.says(Refused(code="busy", reason="no leader"), partition="", ref=header.ref)
            again = await second.welcomes()
            assert (again.kind, again.session) == (header.kind, header.session)
            await (await connecting).close()

    play(story)


def test_the_reason_names_all_addresses_if_none_answers() -> None:
    async def story() -> None:
        with nothing_there() as a, nothing_there() as b:
            with pytest.raises(ConnectFailed) as error:
                await ResourceManager.connect(f"{a},{b}", rm_id="rm-1", timeout_s=0.6)
            assert str(error.value).startswith(f"nothing answers at {a}, {b} within 0.6 s ({a}: nothing listens there")

    play(story)


def test_an_invalid_list_is_refused_before_anything_is_sent() -> None:
    async def story() -> None:
        with pytest.raises(ConnectFailed, match=r"'b:9090' is not an address: it must be tcp://HOST:PORT"):
            await ResourceManager.connect("tcp://a:9090,b:9090", rm_id="rm-1")

    play(story)
    for wrong in ("tcp://a:9090,", ",", ",".join(f"tcp://a:{number}" for number in range(ADDRESSES_MAX + 1))):
        with pytest.raises(ValueError, match=f"expected one address or up to {ADDRESSES_MAX} with commas"):
            ResourceManager.connect(wrong, rm_id="rm-1")


# The session at the next address ------------------------------------------------------------------------------------


async def connected(first: FakeCore, second: FakeCore, *, silence_ms: int = 0) -> ResourceManager:
    """An RM that is registered at the first."""
    welcome = first.welcomes(heartbeat_ms=HEARTBEAT_MS if silence_ms else 0, silence_ms=silence_ms)
    addresses = f"{first.address},{second.address}"
    rm, _ = await asyncio.gather(Kept.connect(addresses, rm_id="rm-1"), welcome)
    return rm


async def resumed(core: FakeCore) -> None:
    await core.hears(Resume)
    await core.says(Registered(partitions=[PARTITION]), partition="")


def test_a_broken_connection_is_replaced_by_one_to_the_next_address_and_nothing_is_lost() -> None:
    async def story() -> None:
        async with FakeCore() as first, FakeCore() as second:
            rm = await connected(first, second)
            results = rm.results()
            await first.says(allocated(1), seq=1)
            assert (await taken(results)).news.new[0].allocation_key == "k1"
            await rm.update_nodes([node("n1")])
            await first.hears(NodeRequest)
            again = first.address
            first.close()
            await until(lambda: not rm._driver._is_connected)
            await rm.update_nodes([node("n2")])
            await resumed(second)
            assert rm.address == second.address
            assert [(await second.hears(NodeRequest))[0].seq for _ in range(2)] == [1, 2]
            await second.says(allocated(1), seq=1)  # sent again, as its acknowledgement was lost
            await second.says(allocated(2), seq=2, ack=2)
            assert (await taken(results)).news.new[0].allocation_key == "k2"

            async with FakeCore(again) as back:
                second.close()
                await resumed(back)
                assert rm.address == again
                await rm.close()

    play(story)


def test_a_silent_address_is_left_for_the_next_one() -> None:
    async def story() -> None:
        async with FakeCore() as first, FakeCore() as second:
            rm = await connected(first, second, silence_ms=SILENCE_MS)
            await rm.update_nodes([node("n1")])
            await first.hears(NodeRequest)
            await resumed(second)
            assert (await second.hears(NodeRequest))[0].seq == 1
            await rm.close()

    play(story)


def test_after_a_goodbye_the_session_continues_elsewhere_without_the_pause() -> None:
    async def story() -> None:
        async with FakeCore() as first, FakeCore() as second:
            rm = await connected(first, second)
            goodbye = Goodbye(reason="stopping", retry_after_milli_seconds=60_000)
            await first.says(goodbye, partition="")
            await resumed(second)
            assert await taken(rm.results()) == Result("", goodbye)
            await rm.close()

    play(story)


# Keys ---------------------------------------------------------------------------------------------------------------


def rm_keys(folder: Path, pair: KeyPair, server: str, **hosts: str) -> Path:
    """The key files of an RM, with the public keys of servers beside them; its secret file."""
    _, secret = write_pair(folder, "rm-1")
    public = folder / "rm-1.key"
    secret.write_text(f'public-key = "{pair.public}"\nsecret-key = "{pair.secret}"')
    for name, key in {"server": server, **hosts}.items():
        shutil.copy(public, folder / f"{name}.key")
        (folder / f"{name}.key").write_text(f'public-key = "{key}"')
    return secret


def names(address: str) -> tuple[str, str]:
    """Two addresses of the same port."""
    return address, address.replace("127.0.0.1", "localhost")


def test_the_session_ends_if_all_addresses_refuse_its_key(tmp_path: Path) -> None:
    async def story(opened: Port) -> None:
        opened.writes("")
        await until(lambda: not opened.admits(ONE))
        addresses = names(opened.router.address)
        keys = rm_keys(tmp_path, ONE, SERVER.public)
        with pytest.raises(KeyRefused) as error:
            await ResourceManager.connect(",".join(addresses), rm_id="rm-1", keys=keys, timeout_s=SOON_S)
        own = fingerprint(read_public(keys))
        reason = f"does not let rm-1 in: our key {own} is not on its allow-list (`yunishard keys allow` puts it there)"
        assert str(error.value) == "; ".join(f"{address} {reason}" for address in addresses)

    play_with_keys(tmp_path, story)


def test_each_host_may_have_a_key_of_its_own_and_a_refusal_is_no_reason_to_give_up(tmp_path: Path) -> None:
    async def story(opened: Port) -> None:
        keys = rm_keys(tmp_path, ONE, KeyPair.new().public, **{"server-localhost": SERVER.public})
        addresses = ",".join(names(opened.router.address))
        connecting = asyncio.create_task(ResourceManager.connect(addresses, rm_id="rm-1", keys=keys, timeout_s=SOON_S))
        assert (await opened.hears()).header.kind == "RegisterResourceManager"
        connecting.cancel()
        await asyncio.gather(connecting, return_exceptions=True)

    play_with_keys(tmp_path, story)
