"""What should run, and what happens when something dies: the machine alone, under a clock of the test's own."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.control_messages import WORKER_REASON_CHARS_MAX, WorkerEnded, WorkersWanted
from common.messages import Header
from common.names import BROKER, RMPROXY, WEBSERVICE, WORKER
from common.settings import Settings, replace_settings
from common.wire import NEVER, Outgoing, make_outgoing
from deploy.children import (
    FIRST_S,
    STEADY_S,
    Alive,
    Announce,
    Assign,
    Connect,
    Died,
    Disconnect,
    Event,
    Failed,
    Forget,
    Instruction,
    Kill,
    Leave,
    Note,
    Ready,
    Start,
    Terminate,
)
from deploy.supervisor import (
    CANNOT_START,
    HASTENED,
    LATE_MAX_S,
    LOOK_S,
    START_MAX_S,
    STARTS_MAX,
    STOP_MAX_S,
    STOPPED,
    TURN_MAX_S,
    WORKER_STOP_MAX_S,
    Supervisor,
)

SILENT_MAX_S = 15.0
WORKER_SILENT_MAX_S = 25.0
SETTINGS = replace_settings(
    Settings(),
    {"native": "tcp://127.0.0.1:0", "grpc": "127.0.0.1:0", "rest": "127.0.0.1:0"},
)
FILE = ("--settings", "s.json")
PROXY_READY = Ready(RMPROXY, {"native": "tcp://127.0.0.1:1", "grpc": "127.0.0.1:2"})
WEB_READY = Ready(WEBSERVICE, {"rest": "http://127.0.0.1:3"})
WORKER_A = f"{WORKER} rm_a#1"
WORKER_B = f"{WORKER} rm_b#1"
SPARE = f"{WORKER} spare-1"


class System:
    """A supervisor with a clock; remembers what it was last told to do, and all notes. Who runs says that it is
    alive, except for those who are `silent`.
    """

    def __init__(self, settings: Settings = SETTINGS, starts_max: int = STARTS_MAX) -> None:
        self.now = 1000.0
        self.supervisor = Supervisor(settings, broker="ipc://b", file="s.json", starts_max=starts_max)
        self.silent: set[str] = set()
        self.notes: list[str] = []
        self._running: set[str] = set()
        self.done = self.tick()

    def tick(self) -> list[Instruction]:
        return self._seen(self.supervisor.tick(self.now))

    def __call__(self, *events: Event) -> list[Instruction]:
        self.done = [step for event in events for step in self._handle(event)]
        return self.done

    def _handle(self, event: Event) -> list[Instruction]:
        if isinstance(event, Died):
            self._running.discard(event.name)
        return self._seen(self.supervisor.handle(event, self.now))

    def wait(self, seconds: float) -> list[Instruction]:
        """Let time pass, ticking whenever the machine wants it."""
        end, done = self.now + seconds, list[Instruction]()
        while self.supervisor.deadline <= end:
            self.now = max(self.now, self.supervisor.deadline)
            done += [step for name in sorted(self._running - self.silent) for step in self._handle(Alive(name))]
            done += self.tick()
        self.now = end
        return done

    def status(self) -> int | None:
        return self.supervisor.status

    def _seen(self, steps: Sequence[Instruction]) -> list[Instruction]:
        self._running |= {step.name for step in steps if isinstance(step, Start)}
        self.notes += [step.text for step in steps if isinstance(step, Note)]
        return [step for step in steps if not isinstance(step, Note)]


def running(*, spares: int = 0, **partitions: int) -> System:
    """A system where everything is ready."""
    system = System(replace(SETTINGS, spare_workers=spares))
    system(Ready(BROKER), WorkersWanted(partitions=partitions))
    system(*(Ready(f"{WORKER} {name}#{epoch}") for name, epoch in partitions.items()))
    system(PROXY_READY, WEB_READY)
    system(*(Ready(name) for name in started(system.done)))
    return system


def started(steps: Sequence[Instruction]) -> list[str]:
    return [step.name for step in steps if isinstance(step, Start)]


def test_the_broker_comes_first_and_the_ports_once_it_is_ready() -> None:
    system = System()
    assert system.done == [Start(BROKER, BROKER, ("--broker", "ipc://b", *FILE))]
    assert system(Ready(BROKER)) == [
        Connect(),
        Start(
            RMPROXY,
            RMPROXY,
            (
                *("--broker", "ipc://b", "--instance", "1", "--native", "tcp://127.0.0.1:0"),
                *("--grpc", "127.0.0.1:0", *FILE),
            ),
        ),
        Start(WEBSERVICE, WEBSERVICE, ("--broker", "ipc://b", "--instance", "1", "--rest", "127.0.0.1:0", *FILE)),
    ]


def test_endpoints_are_announced_once_and_in_order_when_all_are_there() -> None:
    system = System()
    assert system(Ready(BROKER), WEB_READY)[-1] != Announce("ready")
    assert system(PROXY_READY) == [
        Announce("native  tcp://127.0.0.1:1"),
        Announce("grpc    127.0.0.1:2"),
        Announce("rest    http://127.0.0.1:3"),
        Announce("ready"),
    ]
    system(Died(WEBSERVICE, "SIGKILL"))
    system.wait(1)
    assert system(WEB_READY) == []


def test_without_a_rest_port_there_is_no_web_service() -> None:
    system = System(replace(SETTINGS, grpc="off", rest="off"))
    started = system(Ready(BROKER, {}))
    assert [step.name for step in started if isinstance(step, Start)] == [RMPROXY]
    ready = system(Ready(RMPROXY, {"native": "tcp://127.0.0.1:1", "grpc": "off"}))
    lines = [step.line for step in ready if isinstance(step, Announce)]
    assert lines == ["native  tcp://127.0.0.1:1", "grpc    off", "rest    off", "ready"]


def test_exactly_the_wanted_workers_run() -> None:
    system = running()
    [start] = system(WorkersWanted(partitions={"rm_a": 7}))
    assert start == Start(
        f"{WORKER} rm_a#7", WORKER, ("--broker", "ipc://b", "--partition=rm_a", "--epoch", "7", *FILE)
    )
    assert system(WorkersWanted(partitions={"rm_a": 7, "rm_b": 1}))[0] == Start(
        WORKER_B,
        WORKER,
        ("--broker", "ipc://b", "--partition=rm_b", "--epoch", "1", *FILE),
    )
    assert system(WorkersWanted(partitions={"rm_b": 1})) == [Terminate(f"{WORKER} rm_a#7")]
    assert system(Died(f"{WORKER} rm_a#7", "exit status 0")) == [Forget("rm_a")]
    assert system.notes[-1] == f"{WORKER} rm_a#7 stopped (its partition ended)"


def test_when_a_lease_moves_the_old_worker_is_killed_and_its_successor_starts_at_once() -> None:
    system = running(rm_a=1)
    killed, start = system(WorkersWanted(partitions={"rm_a": 2}))
    assert killed == Kill(WORKER_A)
    assert isinstance(start, Start)
    assert (start.name, start.arguments[2:5]) == (f"{WORKER} rm_a#2", ("--partition=rm_a", "--epoch", "2"))
    assert system(Died(WORKER_A, "SIGKILL"), Ready(f"{WORKER} rm_a#2")) == []
    assert f"{WORKER_A} stopped (another worker replaces it)" in system.notes


def test_a_worker_that_was_killed_for_its_slowness_stays_away_if_its_lease_has_moved_meanwhile() -> None:
    system = running(rm_a=1)
    system.silent.add(f"{WORKER} rm_a#2")
    system(WorkersWanted(partitions={"rm_a": 2}))
    assert system.wait(START_MAX_S) == [Kill(f"{WORKER} rm_a#2")]
    assert started(system(WorkersWanted(partitions={"rm_a": 3}), Ready(f"{WORKER} rm_a#3"))) == [f"{WORKER} rm_a#3"]
    assert system(Died(f"{WORKER} rm_a#2", "SIGKILL")) == []
    assert system.wait(100) == []
    assert system(WorkersWanted(partitions={})) == [Terminate(f"{WORKER} rm_a#3")]


def test_a_worker_that_is_asked_to_stop_does_not_hold_up_the_next_lease() -> None:
    system = running(rm_a=1)
    assert system(WorkersWanted(partitions={})) == [Terminate(WORKER_A)]
    assert system(WorkersWanted(partitions={"rm_a": 1})) == [], "as two workers under one lease there must not be"
    killed, start = system(WorkersWanted(partitions={"rm_a": 2}))
    assert (killed, [start.name] if isinstance(start, Start) else []) == (Kill(WORKER_A), [f"{WORKER} rm_a#2"])


def test_a_worker_that_is_wanted_again_starts_once_it_has_stopped() -> None:
    system = running(rm_a=1)
    system(WorkersWanted(partitions={}), WorkersWanted(partitions={"rm_a": 1}))
    assert started(system(Died(WORKER_A, "exit status 0"))) == [WORKER_A]


def test_a_worker_that_dies_starts_again_after_a_pause_with_the_same_epoch() -> None:
    system = running(rm_a=5)
    assert system(Died(f"{WORKER} rm_a#5", "SIGKILL")) == []
    assert system.wait(FIRST_S / 2) == []
    [start] = system.wait(FIRST_S)
    assert isinstance(start, Start)
    assert start.arguments[2:5] == ("--partition=rm_a", "--epoch", "5")


def test_a_worker_that_had_been_well_is_replaced_at_once() -> None:
    system = running(spares=1, rm_a=1)
    system.wait(STEADY_S)
    assert system(Died(WORKER_A, "SIGKILL"))[0] == Assign(SPARE, "rm_a", 1)


def test_new_epochs_do_not_shorten_the_pause_of_a_worker_that_keeps_dying() -> None:
    system = running(rm_a=1)
    for epoch in range(2, 8):
        died_at = system.now
        system(Died(f"{WORKER} rm_a#{epoch - 1}", "exit status 1"))
        assert system(WorkersWanted(partitions={"rm_a": epoch})) == []
        while not (starts := system.wait(0.1)):
            pass
        assert started(starts) == [f"{WORKER} rm_a#{epoch}"]
        pause_s = system.now - died_at
    assert pause_s > 5


def test_a_lease_that_moves_does_not_shorten_the_next_pause_either() -> None:
    system = running(rm_a=1)
    for _ in range(6):
        system(Died(WORKER_A, "exit status 1"))
        system.wait(30)
    system(WorkersWanted(partitions={"rm_a": 2}), Died(WORKER_A, "SIGKILL"), Died(f"{WORKER} rm_a#2", "exit status 1"))
    assert system.wait(5) == []


def test_a_worker_that_is_not_wanted_any_more_does_not_start_again() -> None:
    system = running(rm_a=1)
    system(Died(WORKER_A, "SIGKILL"))
    system(WorkersWanted(partitions={}))
    assert system.wait(100) == []


def test_what_is_left_of_a_partition_is_forgotten_when_it_has_ended_and_its_worker_is_gone() -> None:
    system = running(rm_a=1, rm_b=2)
    assert Forget("rm_a") not in system(WorkersWanted(partitions={"rm_b": 2}))
    assert Forget("rm_a") in system(Died(WORKER_A, "exit status 0"))
    assert Forget("rm_b") not in system.done


def test_what_is_left_of_a_partition_that_is_wanted_again_is_kept() -> None:
    system = running(rm_a=1)
    system(WorkersWanted(partitions={}), WorkersWanted(partitions={"rm_a": 2}), Died(WORKER_A, "exit status 0"))
    assert Forget("rm_a") not in system.done
    system(WorkersWanted(partitions={"rm_a": 3}))
    assert Forget("rm_a") not in system.done


def test_a_worker_that_fails_before_all_is_ready_keeps_nothing_from_starting() -> None:
    system = System()
    system(Ready(BROKER), WorkersWanted(partitions={"rm_a": 1}))
    system(Failed(WORKER_A, "disk full"), Died(WORKER_A, "exit status 2"))
    assert system(PROXY_READY, WEB_READY)[-1] == Announce("ready")
    assert started(system.wait(1)) == [WORKER_A]


def report_of(partition: str, reason: str, *, cannot_start: bool = False) -> Outgoing:
    header = Header(kind="WorkerEnded", partition=partition, epoch=1)
    return make_outgoing(BROKER, WorkerEnded(reason=reason, cannot_start=cannot_start), header)


def test_the_broker_is_told_why_a_worker_cannot_start_and_how_one_that_was_not_ready_ended() -> None:
    system = running()
    system(WorkersWanted(partitions={"rm_a": 1, "rm_b": 1}))
    assert system(Failed(WORKER_A, "disk full" + "!" * 2000)) == []
    [report] = system(Died(WORKER_A, "exit status 2"))
    assert report == report_of("rm_a", ("disk full" + "!" * 2000)[:WORKER_REASON_CHARS_MAX], cannot_start=True)
    assert system(Died(WORKER_B, "SIGSEGV")) == [report_of("rm_b", "SIGSEGV")]
    system.wait(1)
    system.silent.add(WORKER_A)
    assert system.wait(START_MAX_S) == [Kill(WORKER_A)]
    [report] = system(Died(WORKER_A, "SIGKILL"))
    assert report == report_of("rm_a", "not ready after 30 s")


def test_the_broker_is_not_told_of_a_worker_that_was_ready_or_is_not_wanted_any_more() -> None:
    system = running(rm_a=1)
    assert system(Died(WORKER_A, "SIGSEGV")) == []
    system.wait(1)
    system(WorkersWanted(partitions={"rm_a": 2}))
    assert system(Failed(WORKER_A, "fenced"), Died(WORKER_A, "SIGKILL")) == []


def test_a_port_process_that_dies_comes_back_on_the_ports_that_were_bound() -> None:
    system = running()
    system(Died(RMPROXY, "SIGSEGV"), Died(WEBSERVICE, "exit status 1"))
    proxy, web = system.wait(1)
    assert isinstance(proxy, Start)
    assert isinstance(web, Start)
    assert proxy.arguments[4:8] == ("--native", "tcp://127.0.0.1:1", "--grpc", "127.0.0.1:2")
    assert web.arguments[4:6] == ("--rest", "127.0.0.1:3")


def test_when_the_broker_dies_it_alone_begins_again_and_the_others_stay() -> None:
    system = running(rm_a=1)
    assert system(Died(BROKER, "SIGKILL")) == [Disconnect()]
    assert started(system.wait(FIRST_S)) == [BROKER]
    assert system(Ready(BROKER)) == [Connect()]
    assert system(WorkersWanted(partitions={"rm_a": 1})) == []


def test_a_broker_that_keeps_dying_starts_ever_later() -> None:
    system, pauses = running(rm_a=1), list[float]()
    for _ in range(10):
        system(Died(BROKER, "exit status 1"))
        died_at = system.now
        while not started(system.wait(0.1)):
            pass
        pauses.append(system.now - died_at)
    assert pauses == sorted(pauses)
    assert pauses[-1] > 29


def test_without_a_broker_a_worker_that_dies_starts_again_as_the_last_one_wanted_it() -> None:
    system = running(rm_a=1)
    system(Died(BROKER, "SIGKILL"), Died(WORKER_A, "SIGKILL"))
    assert sorted(started(system.wait(FIRST_S))) == [BROKER, WORKER_A]


def test_the_new_broker_may_want_other_workers() -> None:
    system = running(rm_a=1, rm_b=1)
    system(Died(BROKER, "SIGKILL"))
    system.wait(FIRST_S)
    system(Ready(BROKER))
    assert system(WorkersWanted(partitions={"rm_b": 1})) == [Terminate(WORKER_A)]


def test_a_failure_before_all_is_ready_stops_everything_and_says_why() -> None:
    system = System()
    system(Ready(BROKER), WEB_READY)
    assert system(Failed(RMPROXY, "cannot listen"), Died(RMPROXY, "exit status 2")) == [Terminate(WEBSERVICE)]
    assert system(Died(WEBSERVICE, "exit status 0")) == [Terminate(BROKER)]
    system(Died(BROKER, "exit status 0"))
    assert system.status() == CANNOT_START
    assert system.supervisor.failure == "rmproxy cannot start: cannot listen"


def test_a_death_without_a_word_is_told_with_how_it_ended() -> None:
    system = System()
    system(Died(BROKER, "SIGABRT"))
    assert system.status() == CANNOT_START
    assert system.supervisor.failure == "broker cannot start: SIGABRT"


def test_a_process_that_is_never_ready_is_killed() -> None:
    system = System()
    assert system.wait(START_MAX_S) == [Kill(BROKER)]
    system(Died(BROKER, "SIGKILL"))
    assert system.supervisor.failure == "broker cannot start: not ready after 30 s"


def test_a_worker_may_take_as_long_for_its_journal_as_it_says_that_it_is_alive() -> None:
    system = running(rm_a=1)
    system(WorkersWanted(partitions={"rm_a": 2}))
    assert system.wait(10 * START_MAX_S) == []
    system.silent.add(f"{WORKER} rm_a#2")
    assert system.wait(START_MAX_S) == [Kill(f"{WORKER} rm_a#2")]


# Turns ----------------------------------------------------------------------------------------------------------------


def wanting(**partitions: int) -> WorkersWanted:
    """The RM has the name of its partitions up to the underscore."""
    return WorkersWanted(partitions=partitions, managers={name: name.partition("_")[0] for name in partitions})


BIG = {f"big_{number}": 1 for number in range(480)}


def test_only_so_many_workers_start_at_once_and_each_that_is_ready_makes_room_for_the_next() -> None:
    system = running()
    starting = started(system(wanting(**BIG)))
    assert starting == [f"{WORKER} big_{number}#1" for number in range(STARTS_MAX)]
    assert system.wait(1) == []
    seen = [*starting]
    while starting:
        starting = started(system(*map(Ready, starting)))
        assert len(starting) <= STARTS_MAX
        seen += starting
    assert len(set(seen)) == len(seen) == len(BIG)


def test_others_take_turns_with_an_rm_that_has_hundreds_of_partitions() -> None:
    system = running(small_a=1)
    first, *_ = started(system(wanting(small_a=1, **BIG)))
    system(Died(f"{WORKER} small_a#1", "SIGKILL"))
    system.wait(FIRST_S)
    assert started(system(Ready(first))) == [f"{WORKER} small_a#1"]
    second, *_ = started(system(wanting(small_a=1, **BIG, third_a=1), Died(f"{WORKER} big_1#1", "SIGKILL")))
    assert second == f"{WORKER} third_a#1"


def test_partitions_that_were_served_before_come_before_new_ones() -> None:
    system = running(one_a=1, two_a=1)
    system(wanting(one_a=1, two_a=1, **BIG), Died(f"{WORKER} two_a#1", "SIGKILL"))
    system.wait(FIRST_S)
    system(wanting(one_a=1, two_a=1, one_b=1, **BIG))
    assert started(system(Ready(f"{WORKER} big_0#1"))) == [f"{WORKER} two_a#1"]


def test_a_worker_that_starts_for_long_holds_up_nobody() -> None:
    system = running()
    system(wanting(**BIG))
    assert system.wait(TURN_MAX_S - 1) == []
    assert len(started(system.wait(1 + LOOK_S))) == STARTS_MAX


def test_stopping_takes_no_longer_because_hundreds_wait_for_their_turn() -> None:
    system = running()
    starting = started(system(wanting(**BIG)))
    assert system(Leave()) == [Terminate(WEBSERVICE)]
    assert system.wait(TURN_MAX_S) == [Kill(WEBSERVICE)]
    assert system.supervisor.deadline > system.now
    assert system(Died(WEBSERVICE, "exit status 0")) == [Terminate(RMPROXY)]
    assert system(Died(RMPROXY, "exit status 0")) == [Terminate(name) for name in starting]


def test_the_machine_sleeps_while_workers_wait_for_their_turn() -> None:
    system = running()
    system(wanting(**BIG))
    assert system.supervisor.deadline == system.now + LOOK_S


def test_signs_of_life_put_off_nothing_that_is_due() -> None:
    system = running(rm_a=1)
    system(wanting(rm_a=1, **BIG), Died(WORKER_A, "SIGKILL"))
    for seconds in (TURN_MAX_S / 2, TURN_MAX_S / 2):
        system.now += seconds
        system(Alive(BROKER))
    assert system.supervisor.deadline <= system.now
    assert WORKER_A in started(system.tick())


def test_a_pause_ends_when_it_is_due_however_many_are_alive() -> None:
    system = running(rm_a=1)
    system(Died(WORKER_A, "SIGKILL"))
    system.now += 2 * FIRST_S
    system(Alive(BROKER))
    assert system.supervisor.deadline <= system.now


# Silence --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [BROKER, RMPROXY, WEBSERVICE, SPARE])
def test_one_that_falls_silent_is_killed_and_starts_again(name: str) -> None:
    system = running(spares=1, rm_a=1)
    system.silent.add(name)
    assert system.wait(SILENT_MAX_S - LOOK_S) == []
    assert system.wait(LOOK_S) == [Kill(name)]
    assert system.notes[-1] == f"{name}: silent for {SILENT_MAX_S:g} s: killing it"
    system(Died(name, "SIGKILL"))
    assert started(system.wait(FIRST_S)) == [name]


def test_a_worker_that_hangs_is_the_brokers_first_and_killed_if_that_does_not_know_it() -> None:
    """A broker that has just begun anew has not heard of it: it would be wanted, and never come."""
    system = running(rm_a=1)
    system.silent.add(WORKER_A)
    assert system.wait(WORKER_SILENT_MAX_S - LOOK_S) == []
    assert system.wait(LOOK_S) == [Kill(WORKER_A)]
    system(Died(WORKER_A, "SIGKILL"))
    assert started(system.wait(FIRST_S)) == [WORKER_A]


def test_whoever_says_that_it_is_alive_lives_on() -> None:
    assert running(spares=1, rm_a=1).wait(1000) == []


def test_a_supervisor_that_was_stopped_itself_takes_nobody_for_silent() -> None:
    system = running(spares=1, rm_a=1)
    system.wait(3)
    system.now += 1000
    assert system.tick() == []
    system.silent.add(RMPROXY)
    assert system.wait(SILENT_MAX_S - 3 * LOOK_S) == []
    assert system.wait(3 * LOOK_S) == [Kill(RMPROXY)], "who says nothing after that either"


def test_the_time_in_which_the_supervisor_was_stopped_counts_for_nobody() -> None:
    system = System()
    system.now += START_MAX_S - LOOK_S
    assert system.tick() == []
    assert system.wait(START_MAX_S - 2 * LOOK_S) == []
    system = running()
    system(Leave())
    system.now += STOP_MAX_S
    assert system.tick() == []
    assert system.wait(STOP_MAX_S) == [Kill(WEBSERVICE)]


def test_a_stopped_supervisor_that_hears_first_gives_everybody_more_time_as_well() -> None:
    system = running()
    system.now += 1000
    assert system(Alive(BROKER)) == []
    assert system.tick() == []


def test_a_tick_that_is_a_little_late_makes_no_difference() -> None:
    system = running()
    system.silent |= {BROKER, RMPROXY, WEBSERVICE}
    for _ in range(int(SILENT_MAX_S / (LOOK_S + LATE_MAX_S)) + 1):
        system.now += LOOK_S + LATE_MAX_S
        done = system.tick()
    assert done == [Kill(BROKER), Kill(RMPROXY), Kill(WEBSERVICE)]


# Spare workers --------------------------------------------------------------------------------------------------------


def test_spare_workers_start_once_everything_else_is_ready() -> None:
    system = System(replace(SETTINGS, spare_workers=2))
    assert not [name for name in started(system(Ready(BROKER), PROXY_READY)) if WORKER in name]
    starts = [step for step in system(WEB_READY) if isinstance(step, Start)]
    assert [start.name for start in starts] == [SPARE, f"{WORKER} spare-2"]
    assert starts[0].arguments == ("--broker", "ipc://b", "--spare", *FILE)


def test_a_new_partition_goes_to_a_spare_worker_and_another_one_is_started_for_it() -> None:
    system = running(spares=1)
    assign, start = system(WorkersWanted(partitions={"rm_a": 1}))
    assert assign == Assign(SPARE, "rm_a", 1)
    assert isinstance(start, Start)
    assert (start.name, start.arguments[2]) == (f"{WORKER} spare-2", "--spare")
    assert system(Ready(SPARE), Ready(f"{WORKER} spare-2"), WorkersWanted(partitions={"rm_a": 1})) == []


def test_a_spare_worker_takes_over_from_one_that_died() -> None:
    system = running(spares=1, rm_a=1)
    system(Died(WORKER_A, "SIGKILL"))
    assert system.wait(FIRST_S)[0] == Assign(SPARE, "rm_a", 1)
    system(Ready(SPARE))
    system(Died(SPARE, "SIGKILL"))
    assert started(system.wait(2 * FIRST_S)) == [WORKER_A], "as the next spare worker is not ready yet"


def test_a_spare_worker_takes_over_a_lease_that_moved() -> None:
    system = running(spares=1, rm_a=1)
    assert system(WorkersWanted(partitions={"rm_a": 2}))[:2] == [Kill(WORKER_A), Assign(SPARE, "rm_a", 2)]
    system(Ready(SPARE), Ready(f"{WORKER} spare-2"))
    moved = system(WorkersWanted(partitions={"rm_a": 3}))
    assert moved[:2] == [Kill(SPARE), Assign(f"{WORKER} spare-2", "rm_a", 3)]
    assert system(WorkersWanted(partitions={})) == [Terminate(f"{WORKER} spare-2")]


def test_a_spare_worker_that_is_not_ready_gets_no_partition() -> None:
    system = System(replace(SETTINGS, spare_workers=1))
    system(Ready(BROKER), PROXY_READY, WEB_READY)
    assert started(system(WorkersWanted(partitions={"rm_a": 1}))) == [WORKER_A]
    assert system(Ready(SPARE)) == []


def test_of_two_spare_workers_the_one_that_was_heard_last_gets_the_partition() -> None:
    system = running(spares=2)
    system.silent.add(SPARE)
    system.wait(5)
    assert system(WorkersWanted(partitions={"rm_a": 1}))[0] == Assign(f"{WORKER} spare-2", "rm_a", 1)


def test_one_that_does_not_take_its_partition_up_is_killed_and_the_partition_gets_another_worker() -> None:
    system = running(spares=1)
    system(WorkersWanted(partitions={"rm_a": 1}))
    system.silent.add(SPARE)
    system(Ready(f"{WORKER} spare-2"))
    assert system.wait(START_MAX_S) == [Kill(SPARE)]
    system(Died(SPARE, "SIGKILL"))
    assert system.wait(FIRST_S)[0] == Assign(f"{WORKER} spare-2", "rm_a", 1)


def test_spare_workers_that_keep_dying_start_ever_later() -> None:
    system, pauses = running(spares=1), list[float]()
    for _ in range(10):
        died_at = system.now
        system(Died(SPARE, "exit status 1"))
        while not (starts := system.wait(0.1)):
            pass
        assert started(starts) == [SPARE]
        pauses.append(system.now - died_at)
    assert pauses == sorted(pauses)
    assert pauses[-1] > 29


def test_spare_workers_do_not_shorten_the_pauses_of_a_partition_whose_workers_keep_dying() -> None:
    system = running(spares=1, rm_a=1)
    worker = WORKER_A
    for number in range(1, 8):
        died_at = system.now
        system(Died(worker, "exit status 1"))
        worker = f"{WORKER} spare-{number}"
        while Assign(worker, "rm_a", 1) not in system.wait(0.1):
            pass
        system(Ready(worker), Ready(f"{WORKER} spare-{number + 1}"))
    assert system.now - died_at > 10


def test_a_worker_has_longer_to_stop_than_others_as_it_writes_a_snapshot() -> None:
    system = running(spares=1, rm_a=1)
    system(Leave(), Died(WEBSERVICE, "exit status 0"), Died(RMPROXY, "exit status 0"))
    assert system.wait(STOP_MAX_S) == [Kill(SPARE)]
    assert system.wait(WORKER_STOP_MAX_S - STOP_MAX_S) == [Kill(WORKER_A)]


def test_spare_workers_leave_with_the_other_workers() -> None:
    system = running(spares=1, rm_a=1)
    assert system(Leave(), Died(WEBSERVICE, "exit status 0"), Died(RMPROXY, "exit status 0"))[-2:] == [
        Terminate(WORKER_A),
        Terminate(SPARE),
    ]
    assert system(Died(SPARE, "exit status 0"), Died(WORKER_A, "exit status 0")) == [Terminate(BROKER)]


# The end --------------------------------------------------------------------------------------------------------------


def test_leaving_stops_in_order_and_kills_what_does_not_stop() -> None:
    system = running(rm_a=1, rm_b=1)
    assert system(Leave()) == [Terminate(WEBSERVICE)]
    assert system.wait(STOP_MAX_S) == [Kill(WEBSERVICE)]
    assert system(Died(WEBSERVICE, "SIGKILL")) == [Terminate(RMPROXY)]
    assert system(Died(RMPROXY, "exit status 0")) == [Terminate(WORKER_A), Terminate(WORKER_B)]
    assert system(Died(WORKER_A, "exit status 0")) == []
    assert system(Died(WORKER_B, "exit status 0")) == [Terminate(BROKER)]
    assert system.status() is None
    system(Died(BROKER, "exit status 0"))
    assert system.status() == STOPPED
    assert system.supervisor.deadline == NEVER


def test_leaving_twice_kills_everything_at_once() -> None:
    system = running(rm_a=1)
    names = [BROKER, WORKER_A, RMPROXY, WEBSERVICE]
    assert set(system(Leave(), Leave())) == {Terminate(WEBSERVICE), *map(Kill, names)}
    system(*(Died(name, "SIGKILL") for name in names))
    assert system.status() == HASTENED


def test_leaving_while_things_pause_waits_for_no_pause() -> None:
    system = running(rm_a=1)
    system(Died(WORKER_A, "SIGKILL"))
    system(Leave())
    assert system(*(Died(name, "exit status 0") for name in (WEBSERVICE, RMPROXY, BROKER)))[-1] == Disconnect()
    assert system.status() == STOPPED


ROLES = (BROKER, RMPROXY, WEBSERVICE)
DEEDS = ("dies", "ready", "wanted", "wait", "silent", "jump")


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 7), st.sampled_from(DEEDS)), max_size=60), st.integers(0, 2))
def test_whatever_dies_only_what_runs_is_signalled_and_leaving_always_ends(
    story: list[tuple[int, str]], spares: int
) -> None:
    system = running(spares=spares, rm_a=1)
    alive = {*ROLES, WORKER_A, *(f"{WORKER} spare-{number + 1}" for number in range(spares))}
    leases: dict[str, tuple[str, int]] = {WORKER_A: ("rm_a", 1)}

    def book(steps: list[Instruction]) -> None:
        for step in steps:
            match step:
                case Start(name):
                    assert name not in alive
                    alive.add(name)
                    if "#" in name:
                        lease_of(name, *name.removeprefix(f"{WORKER} ").split("#"))
                case Assign(name, partition, epoch):
                    assert name in alive
                    lease_of(name, partition, epoch)
                case Terminate(name) | Kill(name):
                    assert name in alive

    def lease_of(name: str, partition: str, epoch: str | int) -> None:
        lease = (partition, int(epoch))
        assert lease not in [other for one, other in leases.items() if one in alive and one != name]
        leases[name] = lease

    for epoch, (which, deed) in enumerate(story, start=2):
        name = sorted(alive)[which % len(alive)] if alive else ""
        match deed:
            case "wanted":
                book(system(WorkersWanted(partitions={} if which == 0 else {"rm_ab"[: 3 + which % 3]: epoch // 3})))
            case "wait":
                book(system.wait(5.0))
            case "jump":
                system.now += 100
            case "silent":
                system.silent ^= {name}
            case "ready" if alive:
                book(system(Ready(name)))
            case "dies" if alive:
                alive.discard(name)
                leases.pop(name, None)
                book(system(Died(name, "SIGKILL")))
        assert system.status() is None

    book(system(Leave()))
    for _ in range(8):
        for name in sorted(alive):
            alive.discard(name)
            book(system(Died(name, "exit status 0")))
    assert not alive
    assert system.status() == STOPPED
