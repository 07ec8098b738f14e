"""What should run, and what happens when something dies: the machine alone, under a clock of the test's own."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from common.machine import NEVER
from common.messages import WorkersWanted
from deploy.restarts import FIRST_S
from deploy.supervisor import (
    BROKER,
    CANNOT_START,
    HASTENED,
    RMPROXY,
    START_MAX_S,
    STOP_MAX_S,
    STOPPED,
    WEBSERVICE,
    WORKER,
    Announce,
    Connect,
    Died,
    Disconnect,
    Event,
    Failed,
    Instruction,
    Kill,
    Leave,
    Note,
    Plan,
    Ready,
    Start,
    Supervisor,
    Terminate,
)

PLAN = Plan(broker="ipc://b", native="tcp://127.0.0.1:0", grpc="127.0.0.1:0", rest="127.0.0.1:0", log_level="info")
PROXY_READY = Ready(RMPROXY, {"native": "tcp://127.0.0.1:1", "grpc": "127.0.0.1:2"})
WEB_READY = Ready(WEBSERVICE, {"rest": "http://127.0.0.1:3"})
WORKER_A = f"{WORKER} rm_a"


class System:
    """A supervisor with a clock; remembers what it was last told to do, without the notes."""

    def __init__(self, plan: Plan = PLAN) -> None:
        self.now = 1000.0
        self.supervisor = Supervisor(plan)
        self.done = self.tick()

    def tick(self) -> list[Instruction]:
        return self._without_notes(self.supervisor.tick(self.now))

    def __call__(self, *events: Event) -> list[Instruction]:
        self.done = [step for event in events for step in self._without_notes(self.supervisor.handle(event, self.now))]
        return self.done

    def wait(self, seconds: float) -> list[Instruction]:
        """Let time pass, ticking whenever the machine wants it."""
        end, done = self.now + seconds, list[Instruction]()
        while self.supervisor.deadline <= end:
            self.now = max(self.now, self.supervisor.deadline)
            done += self.tick()
        self.now = end
        return done

    def status(self) -> int | None:
        return self.supervisor.status

    @staticmethod
    def _without_notes(steps: Sequence[Instruction]) -> list[Instruction]:
        return [step for step in steps if not isinstance(step, Note)]


def running(**partitions: int) -> System:
    """A system where everything is ready."""
    system = System()
    system(Ready(BROKER), PROXY_READY, WEB_READY, WorkersWanted(partitions=partitions))
    system(*(Ready(f"{WORKER} {name}") for name in partitions))
    return system


def started(steps: Sequence[Instruction]) -> list[str]:
    return [step.name for step in steps if isinstance(step, Start)]


def test_the_broker_comes_first_and_the_ports_once_it_is_ready() -> None:
    system = System()
    assert system.done == [Start(BROKER, BROKER, ("--listen", "ipc://b", "--log-level", "info"))]
    assert system(Ready(BROKER)) == [
        Connect(),
        Start(
            RMPROXY,
            RMPROXY,
            (*("--broker", "ipc://b", "--native", "tcp://127.0.0.1:0", "--grpc", "127.0.0.1:0"), "--log-level", "info"),
        ),
        Start(WEBSERVICE, WEBSERVICE, ("--broker", "ipc://b", "--rest", "127.0.0.1:0", "--log-level", "info")),
    ]


def test_what_a_role_is_to_be_told_goes_to_it() -> None:
    plan = Plan(
        broker="ipc://b", native="n", grpc="g", rest="r", log_level="info", arguments={BROKER: ("--record", "r")}
    )
    [start] = System(plan).done
    assert isinstance(start, Start)
    assert start.arguments[2:4] == ("--record", "r")


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


def test_exactly_the_wanted_workers_run() -> None:
    system = running()
    [start] = system(WorkersWanted(partitions={"rm_a": 7}))
    assert start == Start(
        WORKER_A, WORKER, ("--broker", "ipc://b", "--partition=rm_a", "--epoch", "7", "--log-level", "info")
    )
    assert system(WorkersWanted(partitions={"rm_a": 7, "rm_b": 1}))[0] == Start(
        f"{WORKER} rm_b",
        WORKER,
        ("--broker", "ipc://b", "--partition=rm_b", "--epoch", "1", "--log-level", "info"),
    )
    assert system(WorkersWanted(partitions={"rm_b": 1})) == [Terminate(WORKER_A)]
    assert system(Died(WORKER_A, "exit status 0")) == []


def test_a_new_epoch_restarts_the_worker_at_once() -> None:
    system = running(rm_a=1)
    assert system(WorkersWanted(partitions={"rm_a": 2})) == [Terminate(WORKER_A)]
    [start] = system(Died(WORKER_A, "exit status 0"))
    assert isinstance(start, Start)
    assert "2" in start.arguments


def test_a_worker_that_dies_starts_again_after_a_pause_with_the_same_epoch() -> None:
    system = running(rm_a=5)
    assert system(Died(WORKER_A, "SIGKILL")) == []
    assert system.wait(FIRST_S / 2) == []
    [start] = system.wait(FIRST_S)
    assert isinstance(start, Start)
    assert start.arguments[2:5] == ("--partition=rm_a", "--epoch", "5")


def test_new_epochs_do_not_shorten_the_pause_of_a_worker_that_keeps_dying() -> None:
    system = running(rm_a=1)
    for epoch in range(2, 8):
        system(Died(WORKER_A, "exit status 1"))
        pause = system.supervisor.deadline - system.now
        assert system(WorkersWanted(partitions={"rm_a": epoch})) == []
        [start] = system.wait(pause + 0.001)
        assert isinstance(start, Start)
        assert str(epoch) in start.arguments
    assert pause > 5


def test_a_worker_that_is_not_wanted_any_more_does_not_start_again() -> None:
    system = running(rm_a=1)
    system(Died(WORKER_A, "SIGKILL"))
    system(WorkersWanted(partitions={}))
    assert system.wait(100) == []


def test_a_worker_that_fails_before_all_is_ready_keeps_nothing_from_starting() -> None:
    system = System()
    system(Ready(BROKER), WorkersWanted(partitions={"rm_a": 1}))
    system(Failed(WORKER_A, "disk full"), Died(WORKER_A, "exit status 2"))
    assert system(PROXY_READY, WEB_READY)[-1] == Announce("ready")
    assert started(system.wait(1)) == [WORKER_A]


def test_a_port_process_that_dies_comes_back_on_the_ports_that_were_bound() -> None:
    system = running()
    system(Died(RMPROXY, "SIGSEGV"), Died(WEBSERVICE, "exit status 1"))
    proxy, web = system.wait(1)
    assert isinstance(proxy, Start)
    assert isinstance(web, Start)
    assert proxy.arguments[2:6] == ("--native", "tcp://127.0.0.1:1", "--grpc", "127.0.0.1:2")
    assert web.arguments[2:4] == ("--rest", "127.0.0.1:3")


def test_when_the_broker_dies_everything_is_stopped_in_order_and_begins_again() -> None:
    system = running(rm_a=1)
    assert system(Died(BROKER, "SIGKILL")) == [Disconnect(), Terminate(WEBSERVICE)]
    assert system(Died(WEBSERVICE, "exit status 0")) == [Terminate(RMPROXY)]
    assert system(Died(RMPROXY, "exit status 0")) == [Terminate(WORKER_A)]
    assert system(Died(WORKER_A, "exit status 0")) == []
    assert started(system.wait(FIRST_S)) == [BROKER]
    assert started(system(Ready(BROKER))) == [RMPROXY, WEBSERVICE]
    assert started(system(WorkersWanted(partitions={"rm_a": 2}))) == [WORKER_A]


def test_workers_that_a_dead_broker_wanted_wait_for_the_word_of_the_new_one() -> None:
    system = running(rm_a=1)
    system(*(Died(name, "SIGKILL") for name in (WEBSERVICE, RMPROXY, WORKER_A, BROKER)))
    system(WorkersWanted(partitions={"rm_a": 1}))  # still on its way when the broker died
    assert started(system.wait(1)) == [BROKER]
    assert started(system(Ready(BROKER))) == [RMPROXY, WEBSERVICE]


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


def test_leaving_stops_in_order_and_kills_what_does_not_stop() -> None:
    system = running(rm_a=1, rm_b=1)
    assert system(Leave()) == [Terminate(WEBSERVICE)]
    assert system.wait(STOP_MAX_S) == [Kill(WEBSERVICE)]
    assert system(Died(WEBSERVICE, "SIGKILL")) == [Terminate(RMPROXY)]
    assert system(Died(RMPROXY, "exit status 0")) == [Terminate(WORKER_A), Terminate(f"{WORKER} rm_b")]
    assert system(Died(WORKER_A, "exit status 0")) == []
    assert system(Died(f"{WORKER} rm_b", "exit status 0")) == [Terminate(BROKER)]
    assert system.status() is None
    system(Died(BROKER, "exit status 0"))
    assert system.status() == STOPPED
    assert system.supervisor.deadline == NEVER


def test_leaving_twice_kills_everything_at_once() -> None:
    system = running(rm_a=1)
    names = [BROKER, RMPROXY, WEBSERVICE, WORKER_A]
    assert system(Leave(), Leave()) == [Terminate(WEBSERVICE), *map(Kill, names)]
    system(*(Died(name, "SIGKILL") for name in names))
    assert system.status() == HASTENED


def test_leaving_while_things_pause_waits_for_no_pause() -> None:
    system = running(rm_a=1)
    system(Died(WORKER_A, "SIGKILL"))
    system(Leave())
    assert system.supervisor.deadline == system.now + STOP_MAX_S
    assert system(*(Died(name, "exit status 0") for name in (WEBSERVICE, RMPROXY, BROKER)))[-1] == Disconnect()
    assert system.status() == STOPPED


NAMES = (BROKER, RMPROXY, WEBSERVICE, WORKER_A, f"{WORKER} rm_b")


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(("dies", "ready", "wanted", "wait"))), max_size=60))
def test_whatever_dies_only_what_runs_is_signalled_and_leaving_always_ends(story: list[tuple[str, str]]) -> None:
    system = running(rm_a=1)
    alive = {BROKER, RMPROXY, WEBSERVICE, WORKER_A}

    def book(steps: list[Instruction]) -> None:
        for step in steps:
            match step:
                case Start(name):
                    assert name not in alive
                    alive.add(name)
                case Terminate(name) | Kill(name):
                    assert name in alive

    for epoch, (name, deed) in enumerate(story):
        if deed == "wanted":
            book(system(WorkersWanted(partitions={name.removeprefix(f"{WORKER} "): epoch})))
        elif deed == "wait":
            book(system.wait(5.0))
        elif name in alive and deed == "ready":
            book(system(Ready(name)))
        elif name in alive:
            alive.discard(name)
            book(system(Died(name, "SIGKILL")))
        assert system.status() is None
        assert system.supervisor.deadline > system.now or not alive

    book(system(Leave()))
    for _ in range(len(NAMES) * 2):
        for name in sorted(alive):
            alive.discard(name)
            book(system(Died(name, "exit status 0")))
    assert not alive
    assert system.status() == STOPPED
