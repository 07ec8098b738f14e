"""On which hosts partitions run, and when they move: a leader with several hosts."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.broker.bench import BrokerBench
from tests.broker.hosts_bench import SETTINGS, FakeHost, HostsBench
from yunishard.broker.hosts import FORGOTTEN_S, RETURN_MAX_S, HostRow, Hosts
from yunishard.broker.placement import MOVES_MAX, WORKER_MAX_S
from yunishard.common.messages.control_messages import Hello, HostLeaves
from yunishard.common.messages.query_messages import Answer, ChangeHosts
from yunishard.common.messages.wire import decode_body

LEASE_S = SETTINGS.lease_timeout_s


def cluster(*cores: int) -> HostsBench:
    """Hosts a, b, ... with so many cores."""
    return HostsBench(*(FakeHost(name, one) for name, one in zip("abcdefgh", cores, strict=False)))


def test_partitions_are_spread_by_cores_then_by_rm() -> None:
    bench = cluster(4, 4, 8)
    bench.register("x", 4)
    bench.register("y", 4)
    bench.settle()
    assert bench.placed() == {"a": 2, "b": 2, "c": 4}
    for rm in "xy":
        assert sorted(slot.host for name, slot in bench.slots.items() if name.startswith(rm)) == ["a", "b", "c", "c"]


def test_the_host_is_recorded() -> None:
    bench = cluster(4, 4)
    bench.register("x", 2)
    bench.settle()
    assert bench.records["x"].hosts == {"x_p0": "a", "x_p1": "b"}


def test_partitions_of_a_lost_host_move_and_do_not_come_back_by_themselves() -> None:
    bench = cluster(4, 4, 4)
    bench.register("x", 6)
    bench.settle()
    bench.kill_host("a")
    bench.wait(LEASE_S + 3)
    assert bench.placed() == {"a": 0, "b": 3, "c": 3}
    assert bench.state.counters.moves == {"lost": 2}
    bench.start_host("a")
    bench.wait(30)
    assert bench.placed() == {"a": 0, "b": 3, "c": 3}


def test_partitions_stay_where_they_are_if_every_host_is_silent() -> None:
    bench = cluster(4, 4)
    bench.register("x", 2)
    bench.settle()
    bench.kill_host("a")
    bench.kill_host("b")
    bench.wait(2 * LEASE_S)
    assert [slot.host for slot in bench.slots.values()] == ["a", "b"]
    bench.start_host("b")
    bench.wait(3)
    assert bench.placed() == {"a": 0, "b": 2}


def test_a_host_that_is_silent_and_works_keeps_no_partition() -> None:
    bench = cluster(4, 4)
    bench.register("x", 2)
    bench.settle()
    bench.hosts["a"].is_cut = True
    bench.wait(LEASE_S + 3)
    assert bench.placed() == {"a": 0, "b": 2}
    bench.hosts["a"].is_cut = False
    bench.wait(3)
    assert bench.hosts["a"].workers == {}, "the worker there is dismissed"
    assert bench.hosts["a"].elsewhere == set(bench.slots), "and its partition has not ended"


def test_the_next_leader_keeps_workers_where_they_are() -> None:
    bench = cluster(4, 4)
    bench.register("x", 4)
    bench.settle()
    epochs = {name: slot.epoch for name, slot in bench.slots.items()}
    bench.change_leader()
    bench.wait(20)
    assert {name: slot.epoch for name, slot in bench.slots.items()} == epochs
    assert bench.placed() == {"a": 2, "b": 2}


def test_the_next_leader_waits_no_longer_for_a_lost_host_than_the_last_one_would_have() -> None:
    bench = cluster(4, 4, 4)
    bench.register("x", 3)
    bench.settle()
    bench.kill_host("a")
    bench.change_leader("a")
    bench.wait(LEASE_S - 6.0 + 2)
    assert sum(bench.placed().values()) == 3


def test_a_row_of_a_host_that_has_not_connected_yet_gets_partitions_too() -> None:
    rows = (HostRow(name="b", cores=4, age_s=1.0), HostRow(name="c", cores=4, age_s=3600.0))
    bench = HostsBench(FakeHost("a"), rows=rows)
    bench.register("x", 2)
    bench.wait(3)
    assert sorted(slot.host for slot in bench.slots.values()) == ["a", "b"]


def test_the_next_leader_moves_nothing_although_the_clock_of_the_database_has_jumped_by_days() -> None:
    bench = cluster(4, 4)
    bench.register("x", 4)
    bench.settle()
    rows = tuple(HostRow(name=name, cores=4, age_s=3 * FORGOTTEN_S) for name in "ab")
    bench.change_leader(rows=rows)
    bench.wait(20)
    assert bench.placed() == {"a": 2, "b": 2}
    assert [one.state for one in bench.view().hosts] == ["ready", "ready"]


def test_a_host_that_was_silent_for_a_day_is_not_listed_by_the_next_leader() -> None:
    rows = (HostRow(name="b", age_s=FORGOTTEN_S), HostRow(name="c", age_s=FORGOTTEN_S, is_draining=True))
    bench = HostsBench(FakeHost("a"), rows=rows)
    bench.register("x", 2)
    bench.wait(1)
    assert {slot.host for slot in bench.slots.values()} == {"a"}
    bench.wait(RETURN_MAX_S + 2)
    assert [(one.name, one.state) for one in bench.view().hosts] == [("a", "ready"), ("c", "lost")]


# Removal --------------------------------------------------------------------------------------------------------------


def test_a_removed_host_is_not_known_any_more_until_it_starts_again() -> None:
    bench = cluster(4, 4)
    bench.register("x", 4)
    bench.settle()
    bench.kill_host("b")
    bench.wait(LEASE_S + 3)
    assert [one.state for one in bench.view().hosts] == ["ready", "lost"]
    bench.act("remove", "b")
    assert [one.name for one in bench.view().hosts] == ["a"]
    shown = {one.name: dict(one.samples) for one in bench.broker.metrics._collect(bench.now)}
    assert shown["yunishard_hosts"][("lost",)] == 0
    assert shown["yunishard_host_partitions"] == {("a",): 4}
    bench.wait(LEASE_S)
    assert bench.placed()["a"] == 4
    bench.start_host("b")
    bench.wait(3)
    assert [(one.name, one.state) for one in bench.view().hosts] == [("a", "ready"), ("b", "ready")]


def test_a_host_that_runs_or_still_has_partitions_is_not_removed() -> None:
    bench = cluster(4, 4)
    bench.register("x", 2)
    bench.settle()
    remove = ChangeHosts(action="remove", host="b")
    assert bench.ask(remove) == (409, "host b runs: drain it and stop it first")
    bench.act("drain", "a")
    bench.settle()
    bench.kill_host("b")
    bench.wait(LEASE_S + 3)
    text = "no other host has taken the partitions of host b yet: start one, or undrain one"
    assert bench.ask(remove) == (409, text)
    bench.act("undrain", "a")
    bench.disk_problem = "disk full"
    assert bench.ask(remove) == (503, "the state of host b cannot be recorded: disk full")
    bench.disk_problem = ""
    assert bench.ask(remove)[0] == 200
    assert bench.ask(remove) == (404, "there is no host 'b'; there are: a")


def test_a_host_that_does_not_reach_the_store_is_removed_once_it_is_silent() -> None:
    bench = cluster(4, 4)
    bench.kill_host("b")
    bench.state.hosts.mark_cut_off(["b"])  # as a killed host misses its renewal before it is silent for long
    assert [one.state for one in bench.view().hosts] == ["ready", "lost"]
    remove = ChangeHosts(action="remove", host="b")
    text = "host b does not reach the store, but sent a heartbeat lately: stop it, or try again"
    assert bench.ask(remove) == (409, text)
    bench.wait(LEASE_S + 3)
    assert bench.ask(remove)[0] == 200


# Planned moves --------------------------------------------------------------------------------------------------------


def test_a_partition_of_a_draining_host_keeps_its_worker_until_another_one_is_idle() -> None:
    bench = cluster(4, 4)
    bench.register("x", 2)
    bench.settle()
    bench.hosts["b"].starts_workers = False
    bench.act("drain", "a")
    bench.wait(20)
    slot = bench.slots["x_p0"]
    assert (slot.host, slot.worker_host, slot.is_present) == ("b", "a", True)
    assert [(one.name, one.state, one.partitions, one.leaving) for one in bench.view().hosts] == [
        ("a", "draining", 1, 1),
        ("b", "ready", 1, 0),
    ]
    bench.hosts["b"].starts_workers = True
    bench.keep_workers("b")
    bench.settle()
    assert (slot.worker_host, slot.is_present) == ("b", True)
    assert bench.hosts["a"].workers == {}
    assert bench.view().hosts[0].state == "drained"
    assert bench.state.counters.moves == {"drain": 1}


def test_no_more_than_a_few_partitions_move_at_once() -> None:
    bench = cluster(4, 4)
    bench.register("x", 20)
    bench.settle()
    bench.hosts["b"].starts_workers = False
    bench.act("drain", "a")
    assert bench.view().hosts[0].leaving == MOVES_MAX
    bench.hosts["b"].starts_workers = True
    bench.keep_workers("b")
    bench.wait(5)
    assert bench.placed() == {"a": 0, "b": 20}


def test_a_drain_lasts_until_it_is_taken_back_and_the_partitions_come_back_on_request() -> None:
    bench = cluster(4, 4)
    bench.register("x", 4)
    bench.settle()
    bench.act("drain", "a")
    bench.wait(5)
    bench.change_leader()
    bench.register("y", 2)
    bench.wait(5)
    assert bench.placed() == {"a": 0, "b": 6}
    bench.act("undrain", "a")
    bench.wait(20)
    assert bench.placed() == {"a": 0, "b": 6}, "nothing moves to make the numbers more even"
    bench.act("rebalance")
    assert bench.state.counters.moves["rebalance"] == 3
    bench.wait(5)
    assert bench.placed() == {"a": 3, "b": 3}
    assert not bench.view().rebalancing


def test_a_move_that_takes_too_long_is_given_up_and_another_host_is_chosen() -> None:
    bench = cluster(4, 8, 4)
    bench.register("x", 1)
    bench.settle()
    [slot] = bench.slots.values()
    assert slot.host == "b"
    bench.hosts["a"].starts_workers = False
    bench.act("drain", "b")
    bench.wait(WORKER_MAX_S - 1)
    assert (slot.host, slot.worker_host) == ("a", "b")
    bench.wait(3)
    assert (slot.host, slot.worker_host, slot.is_present) == ("c", "c", True)
    assert "x_p0 leaves host a again: no worker was ready" in bench.state.warnings[-1]


def workers_end(bench: HostsBench, host: str) -> None:
    """All workers of a host end, and no other starts there."""
    bench.hosts[host].starts_workers = False
    for worker in list(bench.hosts[host].workers):
        bench.end_worker(worker)
    bench.settle()


def test_a_host_that_starts_no_workers_loses_the_partitions_that_wait_there() -> None:
    bench = cluster(16, 4, 4)
    bench.register("x", 2)
    bench.settle()
    workers_end(bench, "a")
    bench.wait(WORKER_MAX_S - 1)
    assert [(slot.host, slot.worker) for slot in bench.slots.values()] == [("a", ""), ("a", "")]
    bench.wait(5)
    assert sorted(slot.host for slot in bench.slots.values()) == ["b", "c"]
    assert bench.state.counters.moves == {"unserved": 2}


def test_partitions_wait_as_long_as_workers_start_one_after_the_other() -> None:
    bench = cluster(16, 1)
    bench.register("x", 5)
    bench.settle()
    workers_end(bench, "a")
    for number in range(4):
        bench.wait(WORKER_MAX_S / 2)
        bench.send(f"worker/a.slow-{number}", Hello(role="worker", host="a"))
        bench.settle()
    assert bench.state.counters.moves == {}


def test_the_only_host_keeps_what_waits_there() -> None:
    bench = cluster(4)
    bench.register("x", 1)
    bench.settle()
    workers_end(bench, "a")
    bench.state.warnings.clear()
    bench.wait(3 * WORKER_MAX_S)
    assert (bench.slots["x_p0"].host, bench.state.warnings) == ("a", [])


def test_a_partition_stays_if_the_host_to_which_it_moves_is_lost() -> None:
    bench = cluster(4, 4)
    bench.register("x", 4)
    bench.settle()
    bench.act("drain", "b")
    bench.wait(3)
    bench.hosts["b"].starts_workers = False
    bench.act("undrain", "b")
    bench.act("rebalance")
    assert sum(slot.is_moving for slot in bench.slots.values()) == 2
    epochs = {name: slot.epoch for name, slot in bench.slots.items()}
    bench.kill_host("b")
    bench.wait(LEASE_S + 3)
    assert bench.placed() == {"a": 4, "b": 0}
    assert {name: slot.epoch for name, slot in bench.slots.items()} == epochs


def test_a_partition_stays_if_its_host_returns_before_another_worker_is_idle() -> None:
    bench = cluster(4, 4)
    bench.register("x", 2)
    bench.settle()
    slot, epoch = bench.slots["x_p0"], bench.slots["x_p0"].epoch
    bench.hosts["b"].starts_workers = False
    bench.hosts["a"].is_supervisor_silent = True
    bench.wait(LEASE_S + 2)
    assert (slot.host, slot.worker_host) == ("b", "a")
    bench.hosts["a"].is_supervisor_silent = False
    bench.wait(2)
    bench.reconnect("a")
    bench.settle()
    assert (slot.host, slot.worker_host, slot.epoch) == ("a", "a", epoch)


def test_the_next_leader_plans_moves_in_progress_again() -> None:
    bench = cluster(4, 4)
    bench.register("x", 2)
    bench.settle()
    epoch = bench.slots["x_p0"].epoch
    bench.hosts["b"].starts_workers = False
    bench.act("drain", "a")
    bench.settle()
    assert bench.records["x"].hosts == {"x_p0": "a", "x_p1": "b"}
    bench.change_leader()
    bench.wait(3)
    slot = bench.slots["x_p0"]
    assert (slot.host, slot.worker_host, slot.epoch) == ("b", "a", epoch), "its worker keeps the lease meanwhile"


def test_a_host_that_stops_is_not_waited_for() -> None:
    bench = cluster(4, 4)
    bench.register("x", 2)
    bench.settle()
    bench.send(bench.hosts["a"].supervisor, HostLeaves())
    bench.settle()
    assert bench.placed() == {"a": 0, "b": 2}
    assert bench.view().hosts[0].state == "lost"


def test_requests_that_cannot_be_carried_out_are_refused_with_the_reason() -> None:
    bench = cluster(4, 4)
    assert bench.ask(ChangeHosts(action="drain", host="q")) == (404, "there is no host 'q'; there are: a, b")
    bench.act("drain", "a")
    text = "no other host can take the partitions of host b: start one, or undrain one"
    assert bench.ask(ChangeHosts(action="drain", host="b")) == (409, text)
    assert bench.ask(ChangeHosts(action="rebalance")) == (409, "fewer than two hosts can get partitions")
    bench.disk_problem = "the database is away"
    text = "the state of host a cannot be recorded: the database is away"
    assert bench.ask(ChangeHosts(action="undrain", host="a")) == (503, text)
    assert bench.view().hosts[0].draining


def test_a_system_of_one_host_refuses_moves_with_the_reason() -> None:
    bench = BrokerBench()
    [sent] = bench.hear("webservice/1", ChangeHosts(action="drain", host="local"), rm="", session="", ref="1")
    answer = decode_body(Answer, sent.body)
    assert (answer.status, b"one host only" in answer.body) == (409, True)


# Whatever happens -----------------------------------------------------------------------------------------------------

EVENTS = (
    *("register", "kill", "start", "cut", "mend", "worker", "leader"),
    *("drain", "undrain", "rebalance", "break", "wait", "some"),
)


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 3)), max_size=25),
    st.integers(0, 2**32),
)
def test_whatever_happens_each_partition_ends_on_one_host_that_can_have_it(
    events: list[tuple[str, int]], seed: int
) -> None:
    bench = HostsBench(*(FakeHost(name, cores) for name, cores in zip("abcd", (4, 4, 8, 2), strict=True)), seed=seed)
    for event, number in events:
        happen(bench, event, "abcd"[number])
    for host in bench.hosts.values():
        host.is_cut, host.starts_workers = False, True
        if not host.is_up:
            bench.start_host(host.name)
        bench.keep_workers(host.name)
    bench.wait(2 * LEASE_S)
    if bench.draining.get("a"):
        bench.act("undrain", "a")
    bench.wait(2 * WORKER_MAX_S)
    for name, slot in bench.slots.items():
        host = bench.hosts[slot.host]
        assert slot.is_present, name
        assert not slot.is_moving, name
        assert not bench.draining.get(slot.host)
        assert host.workers[slot.worker] == (name, slot.epoch)
    assert sum(len(one.workers) for one in bench.hosts.values()) == len(bench.slots), "no worker is left over"
    for name in bench.hosts:
        if bench.draining.get(name):
            bench.act("undrain", name)
    bench.act("rebalance")
    bench.wait(30)
    placed = bench.placed()
    most = max(placed[one.name] / one.cores for one in bench.hosts.values())
    assert most <= min((placed[one.name] + 1) / one.cores for one in bench.hosts.values()), "they are balanced"


def happen(bench: HostsBench, event: str, host: str) -> None:
    """Something happens to a host, or to all."""
    one = bench.hosts[host]
    match event:
        case "register" if host not in bench.records:
            bench.register(host, 3)
        case "kill" if one.is_up:
            bench.kill_host(host)
        case "start" if not one.is_up:
            bench.start_host(host)
        case "cut" | "mend":
            one.is_cut = event == "cut"
        case "drain" | "undrain":
            bench.ask(ChangeHosts(action="drain" if event == "drain" else "undrain", host=host))
        case "rebalance":
            bench.ask(ChangeHosts(action="rebalance"))
        case "worker" if one.is_up and one.workers and not one.is_cut:
            bench.end_worker(min(one.workers))
        case "break":
            one.starts_workers = False
        case "leader":
            bench.change_leader(*(name for name, other in bench.hosts.items() if not other.is_up))
        case "wait":
            bench.wait(LEASE_S + 2)
            return
        case "some":
            bench.deliver_some(5)
            return
    bench.deliver_some(20)


def test_a_new_leader_gives_silent_hosts_time_to_return() -> None:
    hosts = Hosts()
    hosts.restore([HostRow(name="a", age_s=60.0), HostRow(name="b", age_s=1.0)], LEASE_S, 1000.0)
    assert hosts.find_silent(LEASE_S, 1000.0 + RETURN_MAX_S - 0.1) == []
    assert [one.name for one in hosts.find_silent(LEASE_S, 1000.0 + RETURN_MAX_S)] == ["a"]
