"""The RM of a partition in virtual time: order, waits, gangs, preemption, refusals, and a partition that ran before."""

from functools import partial

import pytest

from tests.builders import PARTITION, apps, ask, asks, config, nodes
from yunishard.common.messages.rm_messages import NODE_DECOMMISSION, Allocation
from yunishard.common.rm_player import Eviction, Observer, Submission, Task, task_name
from yunishard.partition_worker.engine.partition import Partition
from yunishard.partition_worker.virtual_time import QUIET_S, VirtualTime

START_S = 1_000_000_000.0


class Lines(Observer):
    """What an observer received, as lines with the seconds since the start."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.evictions: list[Eviction] = []

    def accepted(self, application_id: str, queue: str, at: float) -> None:
        self._write(at, f"{application_id} in {queue}")

    def started(self, key: str, application_id: str, node_id: str, at: float) -> None:
        self._write(at, f"{key} on {node_id}")

    def ended(self, key: str, application_id: str, at: float) -> None:
        self._write(at, f"{key} ended")

    def evicted(self, eviction: Eviction, at: float) -> None:
        self.evictions.append(eviction)
        self._write(at, f"{eviction.key} evicted for {eviction.by or 'nobody'}")

    def rejected(self, application_id: str, key: str, reason: str, at: float) -> None:
        self._write(at, f"{key or application_id} rejected")

    def removed(self, application_id: str, at: float) -> None:
        self._write(at, f"{application_id} removed")

    def _write(self, at: float, text: str) -> None:
        self.lines.append(f"{at - START_S:g} {text}")


def job(application: str, *tasks: str, run_s: float | None = 10.0, placeholders: tuple[str, ...] = ()) -> Submission:
    held: tuple[Allocation, ...] = tuple(map(ask, placeholders))
    return Submission(apps(application).new[0], tuple(Task(ask(one), run_s) for one in tasks), held)


class Trial:
    """A new partition with nodes at time 0."""

    def __init__(self, queues: str = "root.a", where: str = "n1 memory=10", *, delay_s: float = 0.0) -> None:
        wanted = config(queues)
        self.observer = Lines()
        self.partition = Partition(wanted, name=PARTITION, now=START_S)
        self.time = VirtualTime(self.partition, self.observer, now=START_S, termination_delay_s=delay_s)
        self.time.schedule(START_S, lambda: nodes(*where.split("; ")))

    def at(self, second: float, submission: Submission) -> None:
        self.time.schedule(START_S + second, lambda: submission)

    def lines(self, until: float | None = None) -> list[str]:
        if until is None:
            self.time.run()
        else:
            self.time.run(START_S + until)
        return self.observer.lines


def test_jobs_that_do_not_fit_together_run_one_after_the_other() -> None:
    trial = Trial()
    trial.at(1, job("app-1 root.a", "app-1 a memory=6"))
    trial.at(2, job("app-2 root.a", "app-2 b memory=6", run_s=5.5))
    assert trial.lines() == [
        "1 app-1 in root.a",
        "1 a on n1",
        "2 app-2 in root.a",
        "11 a ended",
        "11 app-1 removed",
        "11 b on n1",
        "16.5 b ended",
        "16.5 app-2 removed",
    ]
    assert not trial.time.tasks
    assert not trial.partition.applications


def test_what_ends_at_a_time_makes_room_for_what_is_submitted_then() -> None:
    trial = Trial()
    trial.at(0, job("app-1 root.a", "app-1 a memory=10"))
    trial.at(10, job("app-2 root.a", "app-2 b memory=10"))
    assert trial.lines()[2:6] == ["10 a ended", "10 app-1 removed", "10 app-2 in root.a", "10 b on n1"]


def test_a_run_can_be_continued_and_ends_at_its_limit() -> None:
    trial = Trial()
    trial.at(0, job("app-1 root.a", "app-1 a memory=10"))
    assert trial.lines(until=9.5)[-1] == "0 a on n1"
    assert trial.time.now == START_S + 9.5
    assert trial.lines(until=10)[-1] == "10 app-1 removed"


def test_a_gang_runs_once_all_its_placeholders_have_nodes() -> None:
    trial = Trial(where="n1 memory=10; n2 memory=10")
    trial.at(0, job("app-1 root.a", "app-1 a memory=10"))
    trial.at(
        1,
        job(
            "app-2 root.a gang=memory:20",
            *("app-2 r1 memory=10 group=g", "app-2 r2 memory=10 group=g"),
            placeholders=("app-2 p1 memory=10 placeholder group=g", "app-2 p2 memory=10 placeholder group=g"),
        ),
    )
    started = [line for line in trial.lines() if " on " in line or "removed" in line]
    assert started == [
        *("0 a on n1", "10 app-1 removed"),
        *("10 r1 on n2", "10 r2 on n1"),
        "20 app-2 removed",
    ]
    assert not trial.time.tasks


def test_a_soft_gang_without_all_placeholders_runs_as_ordinary_asks_after_the_timeout() -> None:
    trial = Trial()
    placeholders = ("app-2 p1 memory=10 placeholder group=g", "app-2 p2 memory=10 placeholder group=g")
    real = ("app-2 r1 memory=10 group=g", "app-2 r2 memory=10 group=g")
    trial.at(0, job("app-2 root.a gang=memory:20", *real, placeholders=placeholders))
    assert trial.lines() == [
        *("0 app-2 in root.a", "900 r1 on n1", "910 r1 ended"),
        *("910 r2 on n1", "920 r2 ended", "920 app-2 removed"),
    ]


def test_a_hard_gang_without_all_placeholders_fails_after_the_timeout() -> None:
    trial = Trial()
    placeholders = ("app-2 p1 memory=10 placeholder group=g", "app-2 p2 memory=10 placeholder group=g")
    hard = job("app-2 root.a gang=memory:20 style=Hard", "app-2 r1 memory=10 group=g", placeholders=placeholders)
    trial.at(0, hard)
    assert trial.lines()[:2] == ["0 app-2 in root.a", "900 app-2 rejected"]
    assert not trial.time.tasks
    assert not trial.partition.allocations


PREEMPTION = "root.a guaranteed=memory:5; root.b guaranteed=memory:5"


def preempting(delay_s: float = 0.0, keys: tuple[str, str] = ("a1", "a2")) -> Trial:
    """The second key is preempted."""
    trial = Trial(PREEMPTION, delay_s=delay_s)
    trial.at(0, job("app-1 root.a", *(f"app-1 {key} memory=5 victim" for key in keys), run_s=1000.0))
    trial.at(1, job("app-2 root.b", "app-2 b memory=5 preemptor", run_s=10.0))
    return trial


def test_a_preempted_task_is_confirmed_and_starts_again_from_the_beginning() -> None:
    trial = preempting()
    lines = trial.lines()
    (eviction,) = trial.observer.evictions
    assert (eviction.key, eviction.by, eviction.by_queue) == ("a2", "b", "root.b")
    assert eviction.started == START_S
    assert eviction.is_again
    begun = next(line for line in lines if line.endswith(" b on n1"))
    at = float(begun.split()[0])
    assert lines[-5:] == [
        f"{at + 10:g} app-2 removed",
        f"{at + 10:g} a2~2 on n1",
        "1000 a1 ended",
        f"{at + 1010:g} a2~2 ended",
        f"{at + 1010:g} app-1 removed",
    ]
    assert task_name("a2~2") == "a2"


def test_a_key_with_a_tilde_of_the_rm_is_no_second_attempt() -> None:
    names = [task_name(key) for key in ("pod~blue", "pod~blue~2", "pod~", "~2", "pod~2~11")]
    assert names == ["pod~blue", "pod~blue", "pod~", "~2", "pod~2"]


@pytest.mark.parametrize(("key", "other", "again"), [("a2~2", "a1", "a2~3"), ("a~b", "a~b~2", "a~b~3")])
def test_the_key_of_a_next_attempt_is_new(key: str, other: str, again: str) -> None:
    assert f" {again} on n1" in "\n".join(preempting(keys=(other, key)).lines())


def test_the_termination_delay_passes_before_the_room_of_a_victim_is_free() -> None:
    at_once, delayed = preempting().lines(), preempting(delay_s=7.0).lines()
    begun = [float(next(line for line in lines if " b on" in line).split()[0]) for lines in (at_once, delayed)]
    assert begun[1] == begun[0] + 7


def test_a_refused_application_ends_without_having_run() -> None:
    trial = Trial()
    trial.at(3, job("app-1 root.none", "app-1 a memory=6"))
    assert trial.lines() == ["3 app-1 rejected", "3 app-1 removed"]
    assert not trial.time.tasks


def test_a_refused_ask_ends_its_application_with_the_others() -> None:
    trial = Trial()
    trial.at(0, job("app-1 root.a", "app-1 a", "app-1 b memory=2"))
    assert trial.lines()[-3:] == ["0 b on n1", "10 b ended", "10 app-1 removed"]
    assert "0 a rejected" in trial.lines()


def test_an_ask_that_fits_no_node_does_not_keep_a_run_from_ending() -> None:
    trial = Trial()
    trial.at(0, job("app-1 root.a", "app-1 a memory=60"))
    assert trial.lines() == ["0 app-1 in root.a"]
    assert trial.time.now <= START_S + QUIET_S
    assert list(trial.time.tasks) == ["a"]


def test_tasks_of_a_removed_node_run_again_elsewhere() -> None:
    trial = Trial(where="n1 memory=10")
    trial.at(0, job("app-1 root.a", "app-1 a memory=10"))
    trial.time.schedule(START_S + 4, lambda: nodes("n2 memory=10"))
    trial.time.schedule(START_S + 5, partial(nodes, "n1", action=NODE_DECOMMISSION))
    assert trial.lines()[2:] == ["5 a evicted for nobody", "5 a~2 on n2", "15 a~2 ended", "15 app-1 removed"]


def test_it_continues_a_partition_with_running_allocations_and_waiting_asks() -> None:
    partition = Partition(config("root.a"), name=PARTITION, now=START_S)
    partition.apply(nodes("n1 memory=10"), START_S)
    partition.apply(apps("app-1 root.a", "app-2 root.a"), START_S)
    partition.apply(asks("app-1 a memory=10"), START_S)
    partition.step(START_S, 10)
    partition.apply(asks("app-2 b memory=10"), START_S + 1)
    observer = Lines()
    time = VirtualTime(partition, observer, now=START_S + 20)
    time.end_at("a", START_S + 100)
    time.set_run_time("b", 50.0)
    time.run()
    assert observer.lines == [
        *("100 a ended", "100 app-1 removed", "100 b on n1"),
        *("150 b ended", "150 app-2 removed"),
    ]


def test_it_confirms_the_releases_that_a_partition_had_requested_before() -> None:
    partition = Partition(config("root.a"), name=PARTITION, now=START_S)
    partition.apply(nodes("n1 memory=10"), START_S)
    partition.apply(apps("app-1 root.a gang=memory:10"), START_S)
    partition.apply(asks("app-1 p memory=10 placeholder group=g"), START_S)
    partition.step(START_S, 10)
    partition.apply(asks("app-1 r memory=10 group=g"), START_S)
    partition.step(START_S, 10)  # it requests the release of the placeholder
    observer = Lines()
    time = VirtualTime(partition, observer, now=START_S)
    time.set_run_time("r", 5.0)
    time.run()
    assert observer.lines == ["0 r on n1", "5 r ended", "5 app-1 removed"]


def test_an_application_that_stays_gets_further_tasks_and_is_removed_after_the_last_one() -> None:
    trial = Trial()
    trial.at(0, Submission(apps("app-1 root.a").new[0], (Task(ask("app-1 a memory=6"), 5.0),), stays=True))
    trial.time.schedule_task(START_S + 20, Task(ask("app-1 b memory=6"), 10.0))
    trial.time.schedule_removal(START_S + 25, "app-1")
    assert trial.lines() == [
        "0 app-1 in root.a",
        "0 a on n1",
        "5 a ended",
        "20 b on n1",
        "30 b ended",
        "30 app-1 removed",
    ]


def test_an_application_of_a_partition_that_ran_before_can_be_kept() -> None:
    partition = Partition(config(), name=PARTITION, now=START_S)
    partition.apply(nodes("n1 memory=10"), START_S)
    partition.apply(apps("app-1 root.a"), START_S)
    partition.apply(asks("app-1 a memory=6"), START_S)
    observer = Lines()
    time = VirtualTime(partition, observer, now=START_S)
    time.keep("app-1")
    time.set_run_time("a", 5.0)
    time.schedule_removal(START_S + 9, "app-1")
    time.run(START_S + 20)
    assert observer.lines == ["0 a on n1", "5 a ended", "9 app-1 removed"]


def test_a_configuration_can_change_meanwhile() -> None:
    trial = Trial("root.a max=memory:5")
    trial.at(0, job("app-1 root.a", "app-1 a memory=6"))
    assert trial.lines(until=10) == ["0 app-1 in root.a"]
    wanted = config("root.a max=memory:6")
    trial.time.act(lambda: trial.partition.reconfigure(wanted, trial.time.now))
    assert trial.lines(until=30)[1:] == ["10 a on n1", "20 a ended", "20 app-1 removed"]
