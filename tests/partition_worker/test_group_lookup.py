"""The look-up of groups: against the operating system of whoever runs the tests, and with look-ups that hang."""

import asyncio
import grp
import os
import pwd
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from yunishard.common.messages.control_messages import GroupsFound, GroupsWanted
from yunishard.common.messages.wire import Outgoing, decode_body, make_outgoing
from yunishard.partition_worker.group_lookup import (
    NAME_LENGTH_MAX,
    THREADS,
    WANTED_MAX,
    GroupLookup,
    LookupFailed,
    look_up_groups,
)
from yunishard.partition_worker.partition_host import GROUPS

ROOT = Path(__file__).parents[2]
PATIENCE_S = 10
ME = pwd.getpwuid(os.getuid())


def wanted(user: str) -> Outgoing:
    return make_outgoing(GROUPS, GroupsWanted(user=user))


class Desk:
    """An endpoint, and the answers that it gave."""

    def __init__(self, lookup: Callable[[str], list[str]] = look_up_groups, *, limit_s: float = PATIENCE_S) -> None:
        self._woken = asyncio.Event()
        self.groups = GroupLookup(wake=self._woken.set, lookup=lookup, limit_s=limit_s)

    def asks(self, *users: str) -> None:
        for user in users:
            self.groups.send(wanted(user))

    async def answers(self, count: int = 1) -> list[GroupsFound]:
        """The next answers, in the order in which they come."""
        found: list[GroupsFound] = []
        while len(found) < count:
            self._woken.clear()
            while (incoming := self.groups.receive()) is not None:
                assert (incoming.source, incoming.header.kind) == (GROUPS, "GroupsFound")
                found.append(decode_body(GroupsFound, incoming.body))
            if len(found) < count:
                await self._woken.wait()
        return found


def play(story: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await story()

    asyncio.run(bounded())


# The operating system -----------------------------------------------------------------------------------------------


def test_the_groups_of_a_user_are_those_of_the_system_with_the_primary_one_first() -> None:
    groups = look_up_groups(ME.pw_name)
    assert groups[0] == grp.getgrgid(ME.pw_gid).gr_name
    assert sorted(groups) == sorted({grp.getgrgid(gid).gr_name for gid in os.getgrouplist(ME.pw_name, ME.pw_gid)})


@pytest.mark.parametrize("user", [entry.pw_name for entry in pwd.getpwall()[:20]])
def test_every_user_of_the_system_has_a_group(user: str) -> None:
    assert len(look_up_groups(user)) >= 1


@pytest.mark.parametrize("user", ["no-such-user-anywhere", "", "a b", "../etc/passwd", "-G", "0"])
def test_an_unknown_user_has_none(user: str) -> None:
    with pytest.raises(LookupFailed, match=r"^user: unknown user "):
        look_up_groups(user)


@pytest.mark.parametrize("user", ["root\0", "\ud800", "r" * (NAME_LENGTH_MAX + 1)])
def test_a_name_that_no_user_can_have_is_a_failure_like_others(user: str) -> None:
    with pytest.raises(LookupFailed):
        look_up_groups(user)


@pytest.mark.parametrize(("name", "shown"), [(os.fsdecode(b"d\xe9v"), str(ME.pw_gid)), ("dév", "dév")])
def test_a_group_whose_name_is_not_utf_8_goes_by_its_number(
    monkeypatch: pytest.MonkeyPatch, name: str, shown: str
) -> None:
    monkeypatch.setattr(grp, "getgrgid", lambda gid: grp.struct_group((name, "x", gid, [])))
    assert look_up_groups(ME.pw_name)[0] == shown


# The endpoint -------------------------------------------------------------------------------------------------------


def test_each_user_is_answered_with_groups_or_a_problem() -> None:
    async def story() -> None:
        desk = Desk()
        desk.asks(ME.pw_name, "no-such-user-anywhere")
        found = {one.user: one for one in await desk.answers(2)}
        assert found[ME.pw_name].groups == look_up_groups(ME.pw_name)
        assert found[ME.pw_name].problem == ""
        assert found["no-such-user-anywhere"].groups == []
        assert found["no-such-user-anywhere"].problem == "user: unknown user no-such-user-anywhere"

    play(story)


def test_a_look_up_that_takes_too_long_is_answered_in_time_and_its_late_result_is_not_told() -> None:
    async def story() -> None:
        go_on, done = threading.Event(), threading.Event()

        def lookup(user: str) -> list[str]:
            go_on.wait(PATIENCE_S)
            done.set()
            return ["late"]

        desk = Desk(lookup, limit_s=0.01)
        desk.asks("bob")
        (found,) = await desk.answers()
        assert (found.groups, found.problem) == ([], "looking up the groups of user bob took longer than 0.01 s")
        go_on.set()
        await asyncio.to_thread(done.wait)
        desk.asks("eve")
        assert [one.user for one in await desk.answers()] == ["eve"]

    play(story)


def test_when_all_hang_those_behind_them_are_answered_too_and_later_all_is_well_again() -> None:
    async def story() -> None:
        go_on = threading.Event()

        def lookup(user: str) -> list[str]:
            if user.startswith("slow"):
                go_on.wait(PATIENCE_S)
            return ["dev"]

        desk = Desk(lookup, limit_s=0.05)
        desk.asks(*(f"slow-{number}" for number in range(THREADS)), "bob")
        found = await desk.answers(THREADS + 1)
        assert found[-1].user == "bob"
        assert all("took longer" in one.problem for one in found)
        go_on.set()
        desk.asks("bob")
        assert (await desk.answers())[0].user == "bob"

    play(story)


def test_who_is_asked_for_twice_is_looked_up_once() -> None:
    async def story() -> None:
        go_on, looked_up = threading.Event(), list[str]()

        def lookup(user: str) -> list[str]:
            looked_up.append(user)
            go_on.wait(PATIENCE_S)
            return ["dev"]

        desk = Desk(lookup)
        desk.asks("bob", "bob", "bob")
        go_on.set()
        assert [one.groups for one in await desk.answers()] == [["dev"]]
        desk.asks("bob")
        await desk.answers()
        assert looked_up == ["bob", "bob"]

    play(story)


def test_not_more_threads_than_allowed_work_at_once() -> None:
    async def story() -> None:
        lock, now, most = threading.Lock(), 0, 0
        full = threading.Barrier(THREADS)

        def lookup(user: str) -> list[str]:
            nonlocal now, most
            with lock:
                now += 1
                most = max(most, now)
            full.wait(PATIENCE_S)
            with lock:
                now -= 1
            return []

        desk = Desk(lookup)
        desk.asks(*(f"user-{number}" for number in range(3 * THREADS)))
        await desk.answers(3 * THREADS)
        assert most == THREADS

    play(story)


@pytest.mark.parametrize("broken", [os.fsdecode(b"d\xe9v"), None])
def test_what_cannot_be_sent_is_a_problem_that_is_told(broken: str | None) -> None:
    async def story() -> None:
        def lookup(user: str) -> list[str]:
            if broken is None:
                raise LookupFailed(f"no {os.fsdecode(bytes([255]))}")
            return [broken]

        desk = Desk(lookup)
        desk.asks("bob")
        (found,) = await desk.answers()
        assert (found.user, found.groups) == ("bob", [])
        assert found.problem.startswith("no ?" if broken is None else "looking up the groups of user bob failed: Unic")

    play(story)


def test_look_ups_that_break_are_answered_and_their_threads_go_on(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        full = threading.Barrier(THREADS)

        def lookup(user: str) -> list[str]:
            if user.startswith("broken"):
                raise AssertionError("no directory")
            full.wait(PATIENCE_S)
            return ["dev"]

        desk = Desk(lookup)
        desk.asks(*(f"broken-{number}" for number in range(2 * THREADS)))
        found = await desk.answers(2 * THREADS)
        assert {one.problem for one in found} == {
            f"looking up the groups of user {one.user} failed: AssertionError: no directory" for one in found
        }
        desk.asks(*(f"user-{number}" for number in range(THREADS)))  # answered only if as many threads are left
        assert [one.groups for one in await desk.answers(THREADS)] == [["dev"]] * THREADS

    play(story)
    assert "looking up the groups of user 'broken-0' failed" in caplog.text


def test_when_too_many_wait_the_next_is_answered_at_once() -> None:
    async def story() -> None:
        go_on = threading.Event()

        def lookup(user: str) -> list[str]:
            go_on.wait(PATIENCE_S)
            return []

        desk = Desk(lookup)
        desk.asks(*(f"user-{number}" for number in range(WANTED_MAX + 1)))
        (found,) = await desk.answers()
        assert (found.user, f"{WANTED_MAX} lookups wait" in found.problem) == (f"user-{WANTED_MAX}", True)
        go_on.set()
        assert len(await desk.answers(WANTED_MAX)) == WANTED_MAX

    play(story)


@pytest.mark.processes
def test_look_ups_that_hang_do_not_keep_the_process_from_ending() -> None:
    program = """
import asyncio, threading
from yunishard.common.messages.wire import make_outgoing
from yunishard.common.messages.control_messages import GroupsWanted
from yunishard.partition_worker.group_lookup import GroupLookup

async def run():
    hanging = threading.Event()
    groups = GroupLookup(wake=lambda: None, lookup=lambda user: hanging.set() or threading.Event().wait())
    groups.send(make_outgoing("groups", GroupsWanted(user="bob")))
    await asyncio.to_thread(hanging.wait)

asyncio.run(run())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, timeout=PATIENCE_S, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
