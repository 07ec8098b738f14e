"""What the ledger of preemptions says, and how long it remembers."""

from partition_worker.engine.preemption_log import ENTRIES_MAX, VICTIMS_MAX, Preemption, Preemptions, Victim
from tests.builders import apps, asks, nodes, released
from tests.partition_worker.engine.preemption.clusters import cluster, question
from tests.trial import Trial

QUEUES = "root.a; root.b guaranteed=memory:4"
PARTS = ("n1 memory=4", "root.a r1 n1 memory=1", "root.a r2 n1 memory=2 gpu=1")


def taken(trial: Trial, words: str = "memory=2") -> Preemptions:
    """The ledger after everything in `root.a` had to go for an ask of `root.b`, ten seconds after it began."""
    ask = question(trial, f"root.b ask {words}")
    ledger = trial.partition.preemptions
    ledger.record(trial.now + 10.5, ask, trial.node("n1"), list(trial.app("root.a").allocations.values()))
    return ledger


def test_an_entry_says_who_for_whom_and_what_was_lost() -> None:
    trial = cluster(QUEUES, *PARTS)
    (entry,) = taken(trial)
    assert entry == Preemption(
        at=trial.now + 10.5,
        kind="guaranteed",
        queue="root.b",
        application_id="root.b",
        ask_key="ask",
        node_id="n1",
        victims=(
            Victim("r1", "root.a", "root.a", "n1", {"memory": 1}, 10),
            Victim("r2", "root.a", "root.a", "n1", {"memory": 2, "gpu": 1}, 10),
        ),
        victim_count=2,
        resources={"memory": 3, "gpu": 1},
        lost={"memory": 30, "gpu": 10},
    )


def test_the_queue_that_lost_may_not_strike_back() -> None:
    trial = cluster(QUEUES, *PARTS)
    ledger, loser, winner = taken(trial), trial.queue("root.a"), trial.queue("root.b")
    assert ledger.protected(trial.now + 11, loser, {"memory": 1}) == {"root.b"}
    assert ledger.protected(trial.now + 11, winner, {"memory": 1}) == frozenset()
    assert ledger.protected(trial.now + 311, loser, {"memory": 1}) == frozenset()


HALVES = "root.a guaranteed=memory:10; root.b guaranteed=memory:10"


def borrowed_and_taken_back(trial: Trial, owner: str, borrower: str, number: int) -> int:
    """The work of one queue ends, the other one borrows everything, and the first one begins again; how many it got
    back a minute later and after the shortest truce.
    """
    names = [f"{owner} {one.key}" for one in trial.app(owner).allocations.values()]
    trial.does(released(*names))
    trial.does(asks(*(f"{borrower} {borrower}{number}.{n} memory=1 victim" for n in range(10))))
    pending = [f"{borrower} {key}" for key in trial.app(borrower).requests]
    trial.does(released(*pending), asks(*(f"{owner} {owner}{number}.{n} memory=1 victim preemptor" for n in range(10))))
    for _ in range(60):
        trial.waits(6)
        gone = [line.split()[0] for line in trial.told() if "released (PREEMPTED" in line]
        trial.does(*(released(f"{borrower} {key} type=PREEMPTED_BY_SCHEDULER") for key in gone))
    return len(trial.app(owner).allocations)


def test_queues_whose_work_comes_and_goes_get_what_is_guaranteed_however_often_they_take_it_back() -> None:
    trial = Trial(HALVES).does(nodes("n1 memory=20"), apps("a root.a", "b root.b"))
    trial.does(asks(*(f"{name} {name}-{n} memory=1 victim" for name in "ab" for n in range(10))))
    for number in range(20):
        owner, borrower = "ab" if number % 2 else "ba"
        assert borrowed_and_taken_back(trial, owner, borrower, number) == 10, number
        trial.waits(600)


def test_what_a_daemon_took_makes_no_truce_for_nobody_can_take_it_back() -> None:
    trial = cluster(QUEUES, *PARTS)
    (entry,) = taken(trial, "memory=2 required=n1")
    assert entry.kind == "required-node"
    assert len(trial.partition.preemptions.cooldowns.wins) == 0


def test_nor_does_a_quota_which_wins_nothing_for_anybody() -> None:
    trial = cluster(QUEUES, *PARTS)
    ledger, root = trial.partition.preemptions, trial.queue("root")
    ledger.record_quota(trial.now, root, list(trial.app("root.a").allocations.values()))
    (entry,) = ledger
    assert (entry.kind, entry.queue, entry.application_id, entry.ask_key, entry.node_id) == (
        "quota",
        "root",
        "",
        "",
        "",
    )
    assert (entry.victim_count, entry.lost) == (2, {"memory": 0, "gpu": 0})
    assert len(ledger.cooldowns.wins) == 0


def test_amounts_that_change_later_do_not_change_the_entry() -> None:
    trial = cluster(QUEUES, *PARTS)
    (entry,) = taken(trial)
    trial.app("root.a").allocations["r1"].resources["memory"] = 9
    assert entry.victims[0].resources == {"memory": 1}


def test_the_newest_is_first_and_the_oldest_is_forgotten() -> None:
    trial = cluster(QUEUES, *PARTS)
    ledger, root = trial.partition.preemptions, trial.queue("root")
    for second in range(ENTRIES_MAX + 1):
        ledger.record_quota(float(second), root, [])
    assert len(ledger) == ENTRIES_MAX
    at = [entry.at for entry in ledger]
    assert (at[0], at[-1]) == (ENTRIES_MAX, 1)


def test_of_very_many_victims_the_first_are_named_and_all_are_counted() -> None:
    many = VICTIMS_MAX + 1
    trial = cluster(QUEUES, f"n1 memory={many}", *(f"root.a r{number} n1 memory=1" for number in range(many)))
    (entry,) = taken(trial)
    assert len(entry.victims) == VICTIMS_MAX
    assert (entry.victim_count, entry.resources, entry.lost) == (many, {"memory": many}, {"memory": 10 * many})
