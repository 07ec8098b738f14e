"""What the ledger of preemptions says, and how long it remembers."""

import random

import pytest

from tests.builders import apps, asks, nodes, released
from tests.partition_worker.engine.preemption.clusters import cluster, question
from tests.trial import Trial
from yunishard.partition_worker.engine import preemption_log
from yunishard.partition_worker.engine.durable_records import PreemptionRecord, VictimRecord
from yunishard.partition_worker.engine.preemption_log import (
    COOL_DOWN_MAX_S,
    ENTRIES_MAX,
    PAIRS_MAX,
    QUIET_S,
    VICTIMS_MAX,
    PreemptionCooldowns,
    Preemptions,
)
from yunishard.partition_worker.engine.queues.queue import PREEMPTION_COOLDOWN_S as COOL_DOWN_S
from yunishard.partition_worker.engine.queues.queue import PREEMPTION_DELAY_S, Queue

pytestmark = pytest.mark.tampers

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
    (entry,) = taken(trial).entries
    assert entry == PreemptionRecord(
        at=trial.now + 10.5,
        reason="guaranteed",
        queue="root.b",
        application_id="root.b",
        ask_key="ask",
        node_id="n1",
        victims=(
            VictimRecord("r1", "root.a", "root.a", "n1", {"memory": 1}, 10),
            VictimRecord("r2", "root.a", "root.a", "n1", {"memory": 2, "gpu": 1}, 10),
        ),
        victim_count=2,
        resources={"memory": 3, "gpu": 1},
        lost={"memory": 30, "gpu": 10},
    )


def test_two_preemptions_for_one_ask_at_the_same_time_are_two_records() -> None:
    trial = cluster(QUEUES, *PARTS)
    ask, ledger = question(trial, "root.b ask memory=2"), trial.partition.preemptions
    for victim in trial.app("root.a").allocations.values():
        ledger.record(trial.now, ask, trial.node("n1"), [victim])
    assert len({entry.identity for entry in ledger.entries}) == 2


def test_the_queue_that_lost_takes_something_back_after_its_preemption_delay() -> None:
    trial = cluster(QUEUES, *PARTS)
    ledger, loser, winner = taken(trial), trial.queue("root.a"), trial.queue("root.b")
    assert ledger.protected(trial.now + 11, loser, {"memory": 1}) == {"root.b": PREEMPTION_DELAY_S - 0.5}
    assert ledger.protected(trial.now + 11, winner, {"memory": 1}) == {}
    assert ledger.protected(trial.now + 10.5 + PREEMPTION_DELAY_S, loser, {"memory": 1}) == {}


def test_once_two_queues_have_traded_places_their_cooldowns_count() -> None:
    queues = "root.a preemption.delay=1s preemption.cooldown=20s; root.b preemption.delay=2s preemption.cooldown=50s"
    trial = cluster(queues, "n1 memory=4", "root.a r1 n1 memory=1", "root.b r2 n1 memory=1")
    ledger, a, b = trial.partition.preemptions, trial.queue("root.a"), trial.queue("root.b")
    asks_of = {name: question(trial, f"{name} ask-{name} memory=1") for name in ("root.a", "root.b")}

    def take(winner: str, victim: str, at: float) -> None:
        ledger.record(trial.now + at, asks_of[winner], trial.node("n1"), [trial.partition.allocations[victim]])

    def left(queue: Queue, at: float) -> list[float]:
        return list(ledger.protected(trial.now + at, queue, {"memory": 1}).values())

    take("root.b", "r1", 0.0)
    assert left(a, 0.5) == [0.5]
    take("root.a", "r2", 1.0)
    assert (left(a, 1.0), left(b, 1.0)) == ([], [50.0])
    take("root.b", "r1", 51.0)
    assert (left(a, 51.0), left(b, 51.0)) == ([100.0], []), "twice as long as that of the other one"


def test_a_queue_that_has_lost_its_guarantee_has_it_back_after_the_delay() -> None:
    """What it had was larger than what the other one asked for, and that one has taken the rest as well."""
    queues = "root.a guaranteed=memory:4 preemption.delay=1s; root.b guaranteed=memory:6 preemption.delay=1s"
    trial = Trial(queues).does(nodes("n1 memory=10"), apps("a root.a", "b root.b"))
    trial.does(asks("b b1 memory=10 victim"), asks("a a1 memory=4 preemptor victim", "a a2 memory=6 victim")).waits(2)
    trial.does(released("b b1 type=PREEMPTED_BY_SCHEDULER"))
    assert trial.running == ["a1 on n1", "a2 on n1"]
    trial.told()
    trial.does(asks("b b2 memory=6 preemptor victim")).waits(2)
    assert [line.split()[0] for line in trial.told() if "PREEMPTED" in line] == ["a2"]


HALVES = "root.a guaranteed=memory:10; root.b guaranteed=memory:10"


def borrowed_and_taken_back(trial: Trial, owner: str, borrower: str, number: int) -> int:
    """The work of one queue ends, the other one borrows everything, and the first one begins again; how many it got
    back a minute later and after the shortest cooldown.
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


def test_what_a_daemon_took_makes_no_cooldown_for_nobody_can_take_it_back() -> None:
    trial = cluster(QUEUES, *PARTS)
    (entry,) = taken(trial, "memory=2 required=n1").entries
    assert entry.reason == "required-node"
    assert len(trial.partition.preemptions.cooldowns.wins) == 0


def test_nor_does_a_quota_which_wins_nothing_for_anybody() -> None:
    trial = cluster(QUEUES, *PARTS)
    ledger, root = trial.partition.preemptions, trial.queue("root")
    ledger.record_quota(trial.now, root, list(trial.app("root.a").allocations.values()))
    (entry,) = ledger.entries
    assert (entry.reason, entry.queue, entry.application_id, entry.ask_key, entry.node_id) == (
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
    (entry,) = taken(trial).entries
    trial.app("root.a").allocations["r1"].resize({"memory": 9})
    assert entry.victims[0].resources == {"memory": 1}


def test_the_newest_is_first_and_the_oldest_is_forgotten() -> None:
    trial = cluster(QUEUES, *PARTS)
    ledger, root = trial.partition.preemptions, trial.queue("root")
    for second in range(ENTRIES_MAX + 1):
        ledger.record_quota(float(second), root, [])
    assert len(ledger.entries) == ENTRIES_MAX
    at = [entry.at for entry in ledger.entries]
    assert (at[0], at[-1]) == (ENTRIES_MAX, 1)


def test_of_very_many_victims_the_first_are_named_and_all_are_counted() -> None:
    many = VICTIMS_MAX + 1
    trial = cluster(QUEUES, f"n1 memory={many}", *(f"root.a r{number} n1 memory=1" for number in range(many)))
    (entry,) = taken(trial).entries
    assert len(entry.victims) == VICTIMS_MAX
    assert (entry.victim_count, entry.resources, entry.lost) == (many, {"memory": many}, {"memory": 10 * many})


# Preemption cooldown and guarantee deficit ---------------------------------------------------------------------------


def win(
    cooldowns: PreemptionCooldowns,
    winner: str,
    loser: str,
    now: float,
    *,
    first_s: float = COOL_DOWN_S,
    is_quarrel: bool = True,
) -> None:
    """By default, the first cooldown is as long as that of two that trade places."""
    cooldowns.record_win(winner, loser, now, first_s=first_s, again_s=COOL_DOWN_S, is_quarrel=is_quarrel)


EVERY_S = 15.0
"""How often a queue tries again that may take nothing."""


def rounds(queues: list[str], *, days: float, first_s: float) -> list[float]:
    """When something is taken if each of these queues takes from the next as soon as it may, the last from the first,
    and so on for ever.
    """
    cooldowns, now, taken = PreemptionCooldowns(), 0.0, []
    while now < days * 24 * 3600:
        turn = len(taken) % len(queues)
        claimant, holder = queues[turn], queues[(turn + 1) % len(queues)]
        if holder in cooldowns.winners_over(claimant, now):
            now += EVERY_S
        else:
            win(cooldowns, claimant, holder, now, first_s=first_s)
            taken.append(now)
    return taken


def test_whoever_lost_takes_nothing_from_the_winner_until_the_cooldown_is_over() -> None:
    cooldowns = PreemptionCooldowns()
    win(cooldowns, "a", "b", 0.0)
    assert cooldowns.winners_over("b", COOL_DOWN_S - 1) == {"a": 1.0}
    assert cooldowns.winners_over("a", 0.0) == {}
    assert cooldowns.winners_over("b", COOL_DOWN_S) == {}


def test_the_winner_may_take_more_and_renews_the_cooldown_without_doubling_it() -> None:
    cooldowns = PreemptionCooldowns()
    for second in range(100):
        win(cooldowns, "a", "b", float(second))
    assert set(cooldowns.winners_over("b", 99 + COOL_DOWN_S - 1)) == {"a"}
    assert cooldowns.winners_over("b", 99 + COOL_DOWN_S) == {}


def test_a_winner_over_a_winner_is_a_winner() -> None:
    """Or three queues could go round in a circle."""
    cooldowns = PreemptionCooldowns()
    win(cooldowns, "a", "b", 0.0)
    win(cooldowns, "b", "c", 100.0)
    assert set(cooldowns.winners_over("c", 200.0)) == {"a", "b"}
    assert set(cooldowns.winners_over("c", COOL_DOWN_S)) == {"b"}  # the first is over


def test_what_was_lost_may_be_taken_back_after_the_first_cooldown_which_may_be_short() -> None:
    cooldowns = PreemptionCooldowns()
    win(cooldowns, "a", "b", 0.0, first_s=1.0)
    assert cooldowns.winners_over("b", 0.5) == {"a": 0.5}
    assert cooldowns.winners_over("b", 1.0) == {}


@pytest.mark.parametrize("is_quarrel", [False, True])
def test_whoever_closes_a_circle_is_safe_for_longer(is_quarrel: bool) -> None:
    cooldowns = PreemptionCooldowns()
    for number, (winner, loser) in enumerate(("ab", "bc", "ca")):
        win(cooldowns, winner, loser, 10.0 * number, first_s=1.0, is_quarrel=is_quarrel)
    assert cooldowns.winners_over("a", 20.0) == {"c": COOL_DOWN_S}
    win(cooldowns, "a", "b", 20.0, first_s=1.0, is_quarrel=is_quarrel)
    assert cooldowns.winners_over("b", 20.0) == {"a": COOL_DOWN_S, "c": COOL_DOWN_S}


def test_striking_back_after_the_cooldown_makes_a_longer_one() -> None:
    cooldowns = PreemptionCooldowns()
    win(cooldowns, "a", "b", 0.0)
    win(cooldowns, "b", "a", 1000.0)
    assert set(cooldowns.winners_over("a", 1000 + 2 * COOL_DOWN_S - 1)) == {"b"}
    assert cooldowns.winners_over("a", 1000 + 2 * COOL_DOWN_S) == {}


def test_striking_back_without_a_quarrel_does_not() -> None:
    cooldowns = PreemptionCooldowns()
    win(cooldowns, "a", "b", 0.0)
    win(cooldowns, "b", "a", 1000.0, is_quarrel=False)
    assert cooldowns.winners_over("a", 1000 + COOL_DOWN_S) == {}


def test_who_has_no_quarrel_need_not_respect_the_cooldown_of_one_for_longer() -> None:
    cooldowns = PreemptionCooldowns()
    win(cooldowns, "a", "b", 0.0)
    win(cooldowns, "b", "a", 1000.0)
    assert set(cooldowns.winners_over("a", 1000 + COOL_DOWN_S - 1, at_most_s=COOL_DOWN_S)) == {"b"}
    assert cooldowns.winners_over("a", 1000 + COOL_DOWN_S, at_most_s=COOL_DOWN_S) == {}
    assert set(cooldowns.winners_over("a", 1000 + COOL_DOWN_S)) == {"b"}


def test_so_does_closing_a_longer_circle() -> None:
    """Twice the shortest on the way, of the ways the one where that is longest."""
    cooldowns = PreemptionCooldowns()
    win(cooldowns, "a", "b", 0.0)
    win(cooldowns, "b", "c", 0.0)
    for winner, loser in ("ad", "da", "ad", "dc", "cd", "dc"):
        win(cooldowns, winner, loser, 0.0)  # the last of each pair with 4 times the first cooldown
    win(cooldowns, "c", "a", 0.0)  # over b it would be 2 times, over d it is 8 times
    assert set(cooldowns.winners_over("a", 8 * COOL_DOWN_S - 1)) == {"c"}
    assert cooldowns.winners_over("a", 8 * COOL_DOWN_S) == {}


@pytest.mark.parametrize("first_s", [1.0, COOL_DOWN_S])
def test_quarrels_become_slower_and_slower_up_to_a_day(first_s: float) -> None:
    for count in (2, 3, 5):
        taken = rounds([f"q{number}" for number in range(count)], days=10, first_s=first_s)
        laps = [taken[index + count - 1] - taken[index] for index in range(len(taken) - count + 1)]
        assert all(later >= earlier - count * EVERY_S for earlier, later in zip(laps, laps[count:], strict=False))
        assert laps[0] >= first_s
        assert laps[count] >= COOL_DOWN_S
        assert COOL_DOWN_MAX_S <= laps[-1] <= COOL_DOWN_MAX_S + EVERY_S
        assert len(taken) < 40 * count


def test_a_pair_that_keeps_quiet_is_forgotten() -> None:
    cooldowns = PreemptionCooldowns()
    win(cooldowns, "a", "b", 0.0)
    win(cooldowns, "b", "a", COOL_DOWN_S + QUIET_S)  # a first one
    assert cooldowns.winners_over("a", COOL_DOWN_S + QUIET_S + COOL_DOWN_S) == {}
    assert len(cooldowns.wins) == 1
    win(cooldowns, "a", "b", COOL_DOWN_S + QUIET_S + COOL_DOWN_S + QUIET_S - 1)  # not quiet for long enough
    assert len(cooldowns.wins) == 2
    assert set(cooldowns.winners_over("b", 2 * QUIET_S + 3.5 * COOL_DOWN_S)) == {"a"}


def test_a_long_quarrel_is_remembered_for_as_long_as_its_cooldown() -> None:
    cooldowns, now = PreemptionCooldowns(), 0.0
    for number in range(6):  # the last cooldown is 32 times the first, 9600 s
        win(cooldowns, *("ab" if number % 2 == 0 else "ba"), now)
        now += COOL_DOWN_S * 2**number
    win(cooldowns, "a", "b", now + 9_000.0)
    assert set(cooldowns.winners_over("b", now + 9_000.0 + 64 * COOL_DOWN_S - 1)) == {"a"}
    again = now + 9_000.0 + 64 * COOL_DOWN_S * 2
    win(cooldowns, "b", "a", again)
    assert cooldowns.winners_over("a", again + COOL_DOWN_S) == {}


def test_a_pair_is_forgotten_in_its_time_even_if_an_older_one_is_not() -> None:
    cooldowns = PreemptionCooldowns()
    for number in range(6):
        win(cooldowns, *("xy" if number % 2 == 0 else "yx"), 0.0)
    for winner, loser in ("ab", "ba", "ab"):
        win(cooldowns, winner, loser, 0.0)
    later = 4 * COOL_DOWN_S + QUIET_S
    win(cooldowns, "a", "b", later)
    assert set(cooldowns.winners_over("b", later + COOL_DOWN_S - 1)) == {"a"}
    assert cooldowns.winners_over("b", later + COOL_DOWN_S) == {}


def test_the_pair_whose_last_preemption_is_the_longest_ago_is_forgotten_first() -> None:
    cooldowns = PreemptionCooldowns()
    win(cooldowns, "a", "b", 0.0)
    win(cooldowns, "c", "d", 0.0)
    win(cooldowns, "a", "b", 1.0)
    for number in range(PAIRS_MAX - 1):
        win(cooldowns, f"w{number}", f"l{number}", 2.0)
    assert len(cooldowns.wins) == PAIRS_MAX
    assert set(cooldowns.winners_over("b", 3.0)) == {"a"}
    assert cooldowns.winners_over("d", 3.0) == {}


def test_a_queue_has_no_quarrel_with_itself() -> None:
    cooldowns = PreemptionCooldowns()
    win(cooldowns, "a", "a", 0.0)
    assert len(cooldowns.wins) == 0


def test_fresh_wins_never_make_a_circle() -> None:
    """Whatever is tried, by whomever and whenever, as long as what is forbidden is not done."""
    for seed in range(200):
        rng = random.Random(seed)
        cooldowns, now = PreemptionCooldowns(), 0.0
        queues = [f"q{number}" for number in range(rng.randint(2, 6))]
        for _ in range(60):
            now += rng.choice((0.0, 1.0, 100.0, 400.0, 3000.0))
            claimant, holder = rng.sample(queues, 2)
            if holder not in cooldowns.winners_over(claimant, now):
                win(cooldowns, claimant, holder, now, first_s=rng.choice((1.0, 50.0, COOL_DOWN_S)))
            above = {queue: cooldowns.winners_over(queue, now) for queue in queues}
            assert not any(one in above[other] for one in queues for other in above[one]), (seed, above)


GUARANTEED_QUEUES = "root.p guaranteed=memory:12; root.p.a guaranteed=memory:10; root.p.b; root.c"


def using(a: int, b: int = 0) -> Trial:
    """Of two types, in allocations of one of each."""
    one = Trial(GUARANTEED_QUEUES).does(nodes("n1 memory=100 gpu=100"), apps("a root.p.a", "b root.p.b", "c root.c"))
    for name, count in (("a", a), ("b", b), ("c", 4)):
        one.does(asks(*(f"{name} {name}{number} memory=1 gpu=1 victim" for number in range(count))))
    return one


def take(trial: Trial, *keys: str) -> None:
    """They are taken for others, and go at once."""
    victims = [trial.partition.allocations[key] for key in keys]
    preemption_log.add_deficits([(trial.app(one.application_id).queue, one.resources) for one in victims])
    trial.does(*(released(f"{one.application_id} {one.key}") for one in victims))


def explained(trial: Trial, path: str = "root.p.a", amount: int = 1) -> bool:
    return preemption_log.explains_ask(trial.queue(path), {"memory": amount, "gpu": 1})


def test_what_is_taken_from_below_a_guarantee_explains_an_ask_for_it() -> None:
    trial = using(11)
    take(trial, "a0", "a1", "a2")
    assert explained(trial)
    assert explained(trial, amount=2)


def test_what_is_taken_from_the_excess_explains_nothing() -> None:
    trial = using(15)
    take(trial, "a0", "a1", "a2")
    trial.does(released("a a3", "a a4", "a a5", "a a6"))
    assert not explained(trial, amount=2)


def test_work_that_ended_by_itself_explains_an_ask_however_much_was_taken_before() -> None:
    trial = using(11)
    take(trial, "a0", "a1", "a2")  # 2 are lacking
    trial.does(released("a a3", "a a4", "a a5"))
    assert not explained(trial, amount=3)
    assert explained(trial, amount=4), "one of them was taken"


def test_what_was_won_back_is_no_setback_any_more() -> None:
    trial = using(10)
    take(trial, "a0", "a1", "a2")
    trial.does(asks("a again1 memory=1 gpu=1 victim", "a again2 memory=1 gpu=1 victim"))
    take(trial, "again1")
    trial.does(released("a a3", "a a4"))
    assert not explained(trial, amount=2), "2 are lacking, and 4 are not there"
    assert explained(trial, amount=3)


def test_a_guarantee_higher_up_counts_for_all_below() -> None:
    trial = using(8, 4)
    take(trial, "b0", "b1")
    assert explained(trial, "root.p.b")
    assert explained(trial, "root.p.a")


def test_an_ask_for_nothing_that_is_guaranteed_is_as_good_as_explained() -> None:
    trial = using(4)
    assert preemption_log.explains_ask(trial.queue("root.c"), {"memory": 1})
    assert preemption_log.explains_ask(trial.queue("root.p.a"), {"gpu": 1})
    assert not preemption_log.explains_ask(trial.queue("root.p.a"), {"gpu": 1, "memory": 1})
