"""What should run, and what happens when something dies: the machine alone, under a clock of the test's own."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yunishard.common.messages.control_messages import (
    WORKER_REASON_CHARS_MAX,
    Hello,
    HostLeaves,
    WorkerEnded,
    WorkersWanted,
)
from yunishard.common.messages.kinds import Header
from yunishard.common.messages.rm_messages import Heartbeat
from yunishard.common.messages.wire import NEVER, BrokerAddress, Outgoing, decode_body, make_outgoing
from yunishard.common.names import BROKER, FAKE_RM, RMPROXY, WEBSERVICE, WORKER, WORKER_PREFIX
from yunishard.common.retries import FIRST_S
from yunishard.common.settings import Settings, replace_settings
from yunishard.deploy.children import (
    READY,
    Alive,
    Announce,
    Connect,
    Died,
    Disconnect,
    Event,
    Failed,
    Forget,
    Granted,
    HelloWanted,
    Instruction,
    Kill,
    LeaderFound,
    Leave,
    Note,
    Ready,
    Refused,
    Start,
    Tell,
    Terminate,
)
from yunishard.deploy.supervisor import (
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
LEADER = BrokerAddress("ipc://b")
LED = (Ready(BROKER), LeaderFound(LEADER))
"""The broker of this host runs, and leads."""
WEB_READY = Ready(WEBSERVICE, {"rest": "http://127.0.0.1:3"})


class System:
    """A supervisor with a clock; remembers what it was last told to do, and all notes. Who runs says that it is
    alive, except for those who are `silent`.
    """

    def __init__(self, settings: Settings = SETTINGS, starts_max: int = STARTS_MAX) -> None:
        self.now = 1000.0
        self.supervisor = Supervisor(settings, broker="ipc://b", file="s.json", instance="s", starts_max=starts_max)
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


def worker(number: int) -> str:
    """The name of a worker."""
    return f"{WORKER_PREFIX}local.s-{number}"


WORKER_A, WORKER_B, SPARE = worker(1), worker(2), worker(2)
"""Those of the first two partitions; and the first spare one of a system with a partition."""


def wanting(*partitions: str, **dismissed: str) -> WorkersWanted:
    """These partitions are wanted; `w1` is the first worker, and has lost its lease for this one."""
    names = {worker(int(name[1:])): partition for name, partition in dismissed.items()}
    return WorkersWanted(partitions=list(partitions), dismissed=names)


def serving(number: int, partition: str, epoch: int = 1) -> tuple[Event, ...]:
    """A worker registers, gets a partition, and recovers."""
    return Ready(worker(number)), Granted(worker(number), partition, epoch), Ready(worker(number))


def running(*partitions: str, spares: int = 0) -> System:
    """A system where everything is ready."""
    system = System(replace(SETTINGS, spare_workers=spares))
    system(*LED, wanting(*partitions))
    for number, partition in enumerate(partitions, start=1):
        system(*serving(number, partition))
    system(PROXY_READY, WEB_READY)
    system(*(Ready(name) for name in started(system.done)))
    return system


def started(steps: Sequence[Instruction]) -> list[str]:
    return [step.name for step in steps if isinstance(step, Start)]


def test_the_broker_comes_first_and_the_ports_once_it_is_ready() -> None:
    system = System()
    assert system.done == [Start(BROKER, BROKER, ("--broker", "ipc://b", *FILE))]
    assert system(*LED) == [
        Connect(LEADER),
        hello(),
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
    assert system(*LED, WEB_READY)[-1] != Announce("ready")
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
    started = system(Ready(BROKER, {}), LeaderFound(LEADER))
    assert [step.name for step in started if isinstance(step, Start)] == [RMPROXY]
    ready = system(Ready(RMPROXY, {"native": "tcp://127.0.0.1:1", "grpc": "off"}))
    lines = [step.line for step in ready if isinstance(step, Announce)]
    assert lines == ["native  tcp://127.0.0.1:1", "grpc    off", "rest    off", "ready"]


SIMULATED = replace_settings(SETTINGS, {"simulated_nodes": 3})


def test_with_simulated_nodes_the_system_is_ready_once_the_fake_rm_is() -> None:
    system = System(SIMULATED)
    system(*LED, WEB_READY)
    (start,) = system(PROXY_READY)
    assert isinstance(start, Start)
    assert (start.name, start.arguments[2:4]) == (FAKE_RM, ("--native", "tcp://127.0.0.1:1"))
    system(wanting("simulated_default"), *serving(1, "simulated_default"))
    assert system(Ready(FAKE_RM))[-1] == Announce("ready")


def test_the_fake_rm_runs_while_no_other_rm_has_a_partition() -> None:
    system = System(SIMULATED)
    system(*LED, WEB_READY, PROXY_READY, Ready(FAKE_RM), wanting("simulated_default"))
    assert system(wanting("simulated_default", "rm-1_default"))[0] == Terminate(FAKE_RM)
    system(Died(FAKE_RM, "exit status 0"), wanting("rm-1_default"))
    assert FAKE_RM not in started(system.wait(60))
    assert FAKE_RM in started(system(wanting()))


def test_an_rm_that_comes_before_the_fake_rm_takes_its_place() -> None:
    system = System(SIMULATED)
    system(*LED, wanting("rm-1_default"), WEB_READY)
    assert Announce("ready") in system(PROXY_READY)
    assert FAKE_RM not in system.supervisor._children


def test_a_fake_rm_that_cannot_register_ends_the_start() -> None:
    system = System(SIMULATED)
    system(*LED, WEB_READY, PROXY_READY, Failed(FAKE_RM, "no room"), Died(FAKE_RM, "exit status 2"))
    assert system.supervisor.failure == f"{FAKE_RM} cannot start: no room"


def test_a_fake_rm_that_dies_later_starts_again() -> None:
    system = System(SIMULATED)
    system(*LED, WEB_READY, PROXY_READY, Ready(FAKE_RM), Died(FAKE_RM, "SIGKILL"))
    assert FAKE_RM in started(system.wait(FIRST_S + 1))


def hello(**workers: str) -> Outgoing:
    """The first message to a broker; `w1` is the first worker."""
    running = {worker(int(name[1:])): partition for name, partition in workers.items()}
    return make_outgoing(BROKER, Hello(role="supervisor", workers=running))


def test_as_many_workers_run_as_partitions_are_wanted_and_only_their_names_are_given_to_them() -> None:
    system = running()
    [start] = system(wanting("rm_a"))
    assert start == Start(WORKER_A, WORKER, ("--broker", "ipc://b", "--instance", "local.s-1", *FILE))
    assert started(system(wanting("rm_a", "rm_b"))) == [WORKER_B]
    assert system(*serving(1, "rm_b", 7), *serving(2, "rm_a")) == []
    assert system.notes[-6:-2] == [
        f"{WORKER_A} is ready",
        f"{WORKER_A} becomes {WORKER} rm_b#7",
        f"{WORKER} rm_b#7 is ready",
        f"{WORKER_B} is ready",
    ]
    assert system(wanting("rm_b", w2="rm_a")) == [Terminate(WORKER_B)]
    assert system(Died(WORKER_B, "exit status 0")) == [report_of(2, "rm_a"), Forget("rm_a")]
    assert system.notes[-1] == f"{WORKER} rm_a#1 stopped (its partition ended)"


def test_a_worker_whose_partition_is_not_wanted_any_more_before_it_has_any_is_stopped() -> None:
    system = running()
    system(wanting("rm_a", "rm_b"), Ready(WORKER_A))
    assert system(wanting("rm_b")) == [Forget("rm_a"), Terminate(WORKER_A)]


def test_when_a_lease_moves_the_old_worker_is_killed_and_its_successor_starts_at_once() -> None:
    system = running("rm_a")
    killed, start = system(wanting("rm_a", w1="rm_a"))
    assert killed == Kill(WORKER_A)
    assert started([start]) == [WORKER_B]
    assert system(Died(WORKER_A, "SIGKILL"), *serving(2, "rm_a", 2)) == [report_of(1, "rm_a")]
    assert f"{WORKER} rm_a#1 stopped (another worker replaces it)" in system.notes


def test_a_worker_that_is_dismissed_before_it_has_said_what_it_got_is_killed_too() -> None:
    system = running()
    system(wanting("rm_a"), Ready(WORKER_A))
    assert system(wanting("rm_a", w1="rm_a"))[0] == Kill(WORKER_A)
    assert system(Granted(WORKER_A, "rm_a", 1)) == []
    assert system(wanting(w9="rm_a"), Died(WORKER_A, "SIGKILL"))[-1] == Forget("rm_a")


def test_a_worker_that_is_asked_to_stop_does_not_hold_up_the_next_one() -> None:
    system = running("rm_a")
    assert system(wanting(w1="rm_a")) == [Terminate(WORKER_A)]
    killed, start = system(wanting("rm_a"))
    assert (killed, started([start])) == (Kill(WORKER_A), [WORKER_B])


def test_a_worker_that_dies_is_replaced_at_once_by_another_and_the_broker_is_told() -> None:
    system = running("rm_a")
    report, start = system(Died(WORKER_A, "SIGKILL"))
    assert report == report_of(1, "rm_a")
    assert started([start]) == [WORKER_B]


def test_a_worker_that_is_not_wanted_any_more_does_not_start_again() -> None:
    system = running("rm_a")
    system(Died(WORKER_A, "SIGKILL"))
    assert system(wanting()) == [Forget("rm_a"), Terminate(WORKER_B)]
    system(Died(WORKER_B, "exit status 0"))
    assert system.wait(100) == []


def test_a_worker_without_a_partition_that_keeps_dying_starts_ever_later_under_another_name() -> None:
    system, pauses, number = running(), list[float](), 1
    system(wanting("rm_a"))
    for _ in range(10):
        died_at = system.now
        system(Died(worker(number), "exit status 1"))
        while not (starts := system.wait(0.1)):
            pass
        number += 1
        assert started(starts) == [worker(number)]
        pauses.append(system.now - died_at)
    assert pauses == sorted(pauses)
    assert pauses[-1] > 29


def test_what_pauses_is_not_started_once_nobody_wants_it() -> None:
    system = running()
    system(wanting("rm_a"), Died(WORKER_A, "exit status 1"))
    assert system(wanting()) == [Forget("rm_a")]
    assert system.wait(100) == []


def test_what_is_left_of_a_partition_is_forgotten_when_it_has_ended_and_its_worker_is_gone() -> None:
    system = running("rm_a", "rm_b")
    assert Forget("rm_a") not in system(wanting("rm_b", w1="rm_a"))
    assert Forget("rm_a") in system(Died(WORKER_A, "exit status 0"))
    assert Forget("rm_b") not in system.done


def test_what_is_left_of_a_partition_that_is_wanted_again_is_kept() -> None:
    system = running("rm_a")
    system(wanting(w1="rm_a"), wanting("rm_a"), Died(WORKER_A, "exit status 0"))
    assert Forget("rm_a") not in system.done
    system(wanting("rm_a"))
    assert Forget("rm_a") not in system.done


def test_a_worker_that_fails_before_all_is_ready_keeps_nothing_from_starting() -> None:
    system = System()
    system(*LED, wanting("rm_a"))
    system(Failed(WORKER_A, "disk full"), Died(WORKER_A, "exit status 2"))
    assert system(PROXY_READY, WEB_READY)[-1] == Announce("ready")
    assert started(system.wait(1)) == [WORKER_B]


def report_of(
    number: int, partition: str = "", reason: str = "", *, epoch: int = 1, cannot_start: bool = False
) -> Outgoing:
    header = Header(kind="WorkerEnded", partition=partition, epoch=epoch if partition else 0)
    ended = WorkerEnded(worker=worker(number), reason=reason, cannot_start=cannot_start)
    return make_outgoing(BROKER, ended, header)


def test_the_broker_is_told_why_a_worker_cannot_start_and_how_one_that_was_not_ready_ended() -> None:
    system = running()
    system(wanting("rm_a", "rm_b"), Ready(WORKER_A), Granted(WORKER_A, "rm_a", 3))
    assert system(Failed(WORKER_A, "disk full" + "!" * 2000)) == []
    reason = ("disk full" + "!" * 2000)[:WORKER_REASON_CHARS_MAX]
    [report, _] = system(Died(WORKER_A, "exit status 2"))
    assert report == report_of(1, "rm_a", reason, epoch=3, cannot_start=True)
    assert system(Failed(WORKER_B, "no memory"), Died(WORKER_B, "never started"))[0] == report_of(
        2, reason="no memory", cannot_start=True
    )
    [report, _] = system(Ready(worker(3)), Granted(worker(3), "rm_b", 4), Died(worker(3), "SIGSEGV"))
    assert report == report_of(3, "rm_b", "SIGSEGV", epoch=4)
    system.wait(1)
    system.silent.add(worker(4))
    assert Kill(worker(4)) in system.wait(START_MAX_S)
    assert system(Died(worker(4), "SIGKILL"))[0] == report_of(4, reason="not ready after 30 s")


def test_no_reason_is_given_for_the_end_of_a_worker_that_was_ready_or_that_the_supervisor_has_stopped() -> None:
    system = running("rm_a")
    assert system(Failed(WORKER_A, "fenced"), Died(WORKER_A, "exit status 2"))[0] == report_of(1, "rm_a")
    system(*serving(2, "rm_a"), wanting(w2="rm_a"))
    assert system(Died(WORKER_B, "exit status 0"))[0] == report_of(2, "rm_a")
    system(wanting("rm_a"), Leave())
    assert system(Died(worker(3), "SIGKILL")) == [], "as the broker has to stop, too"


def test_a_port_process_that_dies_comes_back_on_the_ports_that_were_bound() -> None:
    system = running()
    system(Died(RMPROXY, "SIGSEGV"), Died(WEBSERVICE, "exit status 1"))
    proxy, web = system.wait(1)
    assert isinstance(proxy, Start)
    assert isinstance(web, Start)
    assert proxy.arguments[4:8] == ("--native", "tcp://127.0.0.1:1", "--grpc", "127.0.0.1:2")
    assert web.arguments[4:6] == ("--rest", "127.0.0.1:3")


def test_when_the_broker_dies_it_alone_begins_again_and_is_told_who_runs() -> None:
    system = running("rm_a", "rm_b", "rm_c")
    system(wanting("rm_a", "rm_b", "rm_c", w2="rm_b"))
    system(Ready(worker(4)), Died(worker(3), "SIGKILL"))
    assert system(Died(BROKER, "SIGKILL")) == [Disconnect()]
    assert started(system.wait(FIRST_S)) == [BROKER]
    assert system(*LED) == [Connect(LEADER), hello(w1="rm_a", w4="", w5="")]
    assert system(wanting("rm_a", "rm_b", "rm_c")) == []


def test_a_broker_that_keeps_dying_starts_ever_later() -> None:
    system, pauses = running("rm_a"), list[float]()
    for _ in range(10):
        system(Died(BROKER, "exit status 1"))
        died_at = system.now
        while not started(system.wait(0.1)):
            pass
        pauses.append(system.now - died_at)
    assert pauses == sorted(pauses)
    assert pauses[-1] > 29


def test_without_a_broker_a_worker_that_dies_is_replaced_too() -> None:
    system = running("rm_a")
    assert started(system(Died(BROKER, "SIGKILL"), Died(WORKER_A, "SIGKILL"))) == [WORKER_B]


def test_a_worker_is_not_stopped_because_a_new_broker_does_not_want_its_partition_until_that_has_met_it() -> None:
    system = running("rm_a", "rm_b")
    system(Died(BROKER, "SIGKILL"))
    system.wait(FIRST_S)
    system(*LED)
    assert system(wanting("rm_b")) == []
    assert system(wanting("rm_b", w1="rm_a")) == [Terminate(WORKER_A)]


def test_a_failure_before_all_is_ready_stops_everything_and_says_why() -> None:
    system = System()
    system(*LED, WEB_READY)
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
    system = running()
    system(wanting("rm_a"), Ready(WORKER_A))
    system.now += 10
    system(Granted(WORKER_A, "rm_a", 1))
    assert system.wait(10 * START_MAX_S) == []
    system.silent.add(WORKER_A)
    assert system.wait(START_MAX_S) == [Kill(WORKER_A)]


# Turns ----------------------------------------------------------------------------------------------------------------


BIG = [f"big_{number}" for number in range(480)]


def test_only_so_many_workers_start_at_once_and_each_that_is_ready_makes_room_for_the_next() -> None:
    system = running()
    starting = started(system(wanting(*BIG)))
    assert starting == [worker(number + 1) for number in range(STARTS_MAX)]
    assert system.wait(1) == []
    seen = [*starting]
    while starting:
        starting = started(system(*map(Ready, starting)))
        assert len(starting) <= STARTS_MAX
        seen += starting
    assert len(set(seen)) == len(seen) == len(BIG)


def test_a_worker_that_recovers_counts_as_one_that_starts() -> None:
    system = running()
    starting = started(system(wanting(*BIG)))
    system(*(Ready(name) for name in starting))
    system(*(Granted(name, BIG[0], 1) for name in starting))
    more = started(system.done) or [worker(STARTS_MAX + 1 + number) for number in range(STARTS_MAX)]
    assert started(system(*map(Ready, more))) == []
    assert len(started(system(*map(Ready, starting)))) <= STARTS_MAX


def test_a_worker_that_starts_for_long_holds_up_nobody() -> None:
    system = running()
    system(wanting(*BIG))
    assert system.wait(TURN_MAX_S - 1) == []
    assert len(started(system.wait(1 + LOOK_S))) == STARTS_MAX


def test_stopping_takes_no_longer_because_hundreds_wait_for_their_turn() -> None:
    system = running()
    starting = started(system(wanting(*BIG)))
    assert system(Leave()) == [Terminate(WEBSERVICE)]
    assert system.wait(TURN_MAX_S) == [Kill(WEBSERVICE)]
    assert system.supervisor.deadline > system.now
    assert system(Died(WEBSERVICE, "exit status 0")) == [Terminate(RMPROXY)]
    assert system(Died(RMPROXY, "exit status 0")) == [Terminate(name) for name in starting]


def test_the_machine_sleeps_while_workers_wait_for_their_turn() -> None:
    system = running()
    system(wanting(*BIG))
    assert system.supervisor.deadline == system.now + LOOK_S


def test_signs_of_life_put_off_nothing_that_is_due() -> None:
    system = running()
    system(wanting(*BIG))
    for seconds in (TURN_MAX_S / 2, TURN_MAX_S / 2):
        system.now += seconds
        system(Alive(BROKER))
    assert system.supervisor.deadline <= system.now
    assert len(started(system.tick())) == STARTS_MAX


def test_a_pause_ends_when_it_is_due_however_many_are_alive() -> None:
    system = running("rm_a")
    system(Died(RMPROXY, "SIGKILL"))
    system.now += 2 * FIRST_S
    system(Alive(BROKER))
    assert system.supervisor.deadline <= system.now


# Silence --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [BROKER, RMPROXY, WEBSERVICE, SPARE])
def test_one_that_falls_silent_is_killed_and_starts_again(name: str) -> None:
    system = running("rm_a", spares=1)
    system.silent.add(name)
    assert system.wait(SILENT_MAX_S - LOOK_S) == []
    assert system.wait(LOOK_S) == [Kill(name)]
    assert system.notes[-1] == f"{name}: silent for {SILENT_MAX_S:g} s: killing it"
    system(Died(name, "SIGKILL"))
    assert started(system.wait(FIRST_S)) == [worker(3) if name == SPARE else name]


def test_a_worker_that_hangs_is_the_brokers_first_and_killed_if_that_does_not_know_it() -> None:
    """A broker that has just begun anew has not heard of it: it would be wanted, and never come."""
    system = running("rm_a")
    system.silent.add(WORKER_A)
    assert system.wait(WORKER_SILENT_MAX_S - LOOK_S) == []
    assert system.wait(LOOK_S) == [Kill(WORKER_A)]
    assert system(Died(WORKER_A, "SIGKILL"))[0] == report_of(1, "rm_a")
    assert started(system.done) == [WORKER_B]


def test_whoever_says_that_it_is_alive_lives_on() -> None:
    assert running("rm_a", spares=1).wait(1000) == []


def test_a_supervisor_that_was_stopped_itself_takes_nobody_for_silent() -> None:
    system = running("rm_a", spares=1)
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
    assert not [name for name in started(system(*LED, PROXY_READY)) if "worker" in name]
    starts = [step for step in system(WEB_READY) if isinstance(step, Start)]
    assert [start.name for start in starts] == [worker(1), worker(2)]
    assert starts[0].arguments == ("--broker", "ipc://b", "--instance", "local.s-1", *FILE)


def test_for_a_spare_worker_that_gets_a_partition_another_one_is_started() -> None:
    system = running(spares=1)
    assert started(system(wanting("rm_a"))) == [worker(2)]
    assert system(Granted(worker(1), "rm_a", 1), Ready(worker(1)), Ready(worker(2)), wanting("rm_a")) == []
    assert started(system(Died(worker(1), "SIGKILL"))) == [worker(3)]


def test_a_worker_has_longer_to_stop_than_others_as_it_writes_a_snapshot() -> None:
    system = running("rm_a", spares=1)
    system(Leave(), Died(WEBSERVICE, "exit status 0"), Died(RMPROXY, "exit status 0"))
    assert system.wait(STOP_MAX_S) == [Kill(SPARE)]
    assert system.wait(WORKER_STOP_MAX_S - STOP_MAX_S) == [Kill(WORKER_A)]


def test_spare_workers_leave_with_the_other_workers() -> None:
    system = running("rm_a", spares=1)
    assert system(Leave(), Died(WEBSERVICE, "exit status 0"), Died(RMPROXY, "exit status 0"))[-2:] == [
        Terminate(WORKER_A),
        Terminate(SPARE),
    ]
    assert system(Died(SPARE, "exit status 0"), Died(WORKER_A, "exit status 0")) == [Terminate(BROKER)]


# The end --------------------------------------------------------------------------------------------------------------


def test_leaving_stops_in_order_and_kills_what_does_not_stop() -> None:
    system = running("rm_a", "rm_b")
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
    system = running("rm_a")
    names = [BROKER, WORKER_A, RMPROXY, WEBSERVICE]
    assert set(system(Leave(), Leave())) == {Terminate(WEBSERVICE), *map(Kill, names)}
    system(*(Died(name, "SIGKILL") for name in names))
    assert system.status() == HASTENED


def test_leaving_while_things_pause_waits_for_no_pause() -> None:
    system = running(spares=1)
    system(Died(WORKER_A, "SIGKILL"))
    system(Leave())
    assert system(*(Died(name, "exit status 0") for name in (WEBSERVICE, RMPROXY, BROKER)))[-1] == Disconnect()
    assert system.status() == STOPPED


ROLES = (BROKER, RMPROXY, WEBSERVICE)
DEEDS = ("dies", "ready", "granted", "wanted", "wait", "silent", "jump")


@given(st.lists(st.tuples(st.integers(0, 7), st.sampled_from(DEEDS)), max_size=60), st.integers(0, 2))
def test_whatever_dies_only_what_runs_is_signalled_and_leaving_always_ends(
    story: list[tuple[int, str]], spares: int
) -> None:
    system = running("rm_a", spares=spares)
    alive = {*ROLES, *(worker(number + 1) for number in range(1 + spares))}
    names = set(alive)

    def book(steps: list[Instruction]) -> None:
        for step in steps:
            match step:
                case Start(name):
                    assert name not in alive
                    assert name in ROLES or name not in names, "a worker's name comes only once"
                    alive.add(name)
                    names.add(name)
                case Terminate(name) | Kill(name):
                    assert name in alive

    for epoch, (which, deed) in enumerate(story, start=2):
        name = sorted(alive)[which % len(alive)] if alive else ""
        match deed:
            case "wanted":
                partitions = [] if which == 0 else [f"rm_{'ab'[which % 2]}"]
                lost = {name: "rm_a"} if which > 4 and name not in ROLES else {}
                book(system(WorkersWanted(partitions=partitions, dismissed=lost)))
            case "wait":
                book(system.wait(5.0))
            case "jump":
                system.now += 100
            case "silent":
                system.silent ^= {name}
            case "ready" if alive:
                book(system(Ready(name)))
            case "granted" if alive and name not in ROLES:
                book(system(Granted(name, "rm_a", epoch)))
            case "dies" if alive:
                alive.discard(name)
                book(system(Died(name, "SIGKILL")))
        assert system.status() is None

    book(system(Leave()))
    for _ in range(8):
        for name in sorted(alive):
            alive.discard(name)
            book(system(Died(name, "exit status 0")))
    assert not alive
    assert system.status() == STOPPED


# Several hosts --------------------------------------------------------------------------------------------------------

OTHER = BrokerAddress("tcp://10.0.0.2:9094", "its key")
ON_HOST_A = replace(SETTINGS, host_name="a", cluster_address="tcp://10.0.0.1:9094")
HEARTBEAT = make_outgoing(BROKER, Heartbeat())


def test_nothing_connects_before_the_leader_is_known_and_then_all_to_it() -> None:
    system = System(ON_HOST_A)
    assert system(Ready(BROKER)) == []
    connected, greeting, *started = system(LeaderFound(OTHER))
    assert connected == Connect(OTHER)
    assert isinstance(greeting, Outgoing)
    assert [step.name for step in started if isinstance(step, Start)] == [RMPROXY, WEBSERVICE]
    arguments = [step.arguments[:4] for step in started if isinstance(step, Start)]
    assert arguments == [("--broker", OTHER.address, "--broker-key", OTHER.key)] * 2


def test_a_host_is_ready_once_the_leader_has_answered_it() -> None:
    system = System(ON_HOST_A)
    assert READY not in [*system(Ready(BROKER), LeaderFound(OTHER), PROXY_READY, WEB_READY), *system.wait(60)]
    assert system.notes[-1] == (
        "this host is not ready: the leading broker at tcp://10.0.0.2:9094 has not answered for 10 s; look for"
        " `no connection to the broker` above, and compare the keys of the hosts (`yunishard cluster --help`)"
    )
    system(Died(RMPROXY, "SIGKILL"))
    assert RMPROXY in started([*system.done, *system.wait(1)]), "it runs, so a process that ends is restarted"
    assert READY not in system(PROXY_READY)
    assert system(wanting()).count(READY) == 1
    assert READY not in system(wanting())


def test_a_system_that_another_one_has_replaced_ends_at_once_and_tells_the_leader_nothing() -> None:
    system = System(ON_HOST_A)
    system(Ready(BROKER), LeaderFound(OTHER), wanting("rm_a"), PROXY_READY, WEB_READY)
    processes = (BROKER, RMPROXY, WEBSERVICE, f"{WORKER_PREFIX}a.s-1")
    steps = system(Refused(BROKER, "host a runs on vm-1"))
    assert steps[0] == Disconnect()
    assert sorted(steps[1:], key=str) == sorted((Kill(name) for name in processes), key=str)
    system(*(Died(name, "SIGKILL") for name in processes))
    assert (system.status(), system.supervisor.failure) == (CANNOT_START, "host a runs on vm-1")


def test_all_processes_are_told_of_another_leader_once() -> None:
    system = running("rm_a")
    *told, connected, greeting = system(LeaderFound(OTHER))
    assert told == [Tell(name, OTHER) for name in (RMPROXY, WEBSERVICE, WORKER_A)]
    assert connected == Connect(OTHER)
    assert isinstance(greeting, Outgoing)
    assert system(LeaderFound(OTHER)) == []


def test_the_connection_to_another_host_outlives_the_own_broker() -> None:
    system = running("rm_a")
    system(LeaderFound(OTHER))
    assert Disconnect() not in system(Died(BROKER, "SIGKILL"))
    system.wait(FIRST_S)
    assert system(Ready(BROKER), LeaderFound(OTHER)) == []


def test_a_leader_that_does_not_know_the_supervisor_receives_its_workers() -> None:
    system = running("rm_a")
    (greeting,) = system(HelloWanted())
    assert isinstance(greeting, Outgoing)
    assert decode_body(Hello, greeting.body).workers == {WORKER_A: "rm_a"}


def test_heartbeats_go_to_a_leader_on_another_host_only() -> None:
    system = System(ON_HOST_A)
    assert HEARTBEAT not in system.wait(3)
    system(Ready(BROKER), LeaderFound(OTHER), PROXY_READY, WEB_READY)
    assert system.wait(3).count(HEARTBEAT) == 4, "at once, and each second"
    embedded = running("rm_a")
    assert HEARTBEAT not in embedded.wait(3)


def test_a_worker_whose_partition_moved_is_killed_and_the_partition_has_not_ended() -> None:
    system = running("rm_a", "rm_b")
    moved = WorkersWanted(partitions=["rm_b"], dismissed={WORKER_A: "rm_a"}, elsewhere=["rm_a"])
    assert system(moved) == [Kill(WORKER_A)]
    assert Forget("rm_a") not in system(Died(WORKER_A, "SIGKILL"))
    assert f"{WORKER} rm_a#1 stopped (another worker replaces it)" in system.notes[-1]
    assert Forget("rm_a") not in system(wanting("rm_b")), "it ended elsewhere"


def test_a_host_that_stops_tells_each_leader_so() -> None:
    system = System(ON_HOST_A)
    system(Ready(BROKER), LeaderFound(OTHER), PROXY_READY, WEB_READY)
    leaves = make_outgoing(BROKER, HostLeaves())
    assert system(Leave()) == [leaves, Terminate(WEBSERVICE)]
    assert system(HelloWanted()) == [leaves]
    assert leaves in system(LeaderFound(LEADER))
    embedded = running("rm_a")
    assert leaves not in embedded(Leave())
