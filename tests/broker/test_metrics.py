"""What the broker tells of itself and of those who have told it theirs."""

import pytest

from tests.broker.bench import PROXY, WEB, BrokerBench, registered
from tests.broker.hosts_bench import FakeHost, HostsBench
from tests.machines import ONE_QUEUE, PARTITION, RM, said
from yunishard.broker.metrics import REPORT_MAX_AGE_S
from yunishard.common.messages.control_messages import Figures, HostLeaves, NodesAstray
from yunishard.common.messages.query_messages import Answer, ListPartitions, PartitionList, Query
from yunishard.common.messages.wire import decode_body
from yunishard.common.names import RMPROXY, SUPERVISOR, process_label
from yunishard.common.process.metrics import Family, Sample, decode_families, encode_families, gauge, report_process_up

UP = "yunishard_process_up"


def asked(bench: BrokerBench) -> list[Family]:
    [sent] = bench.hear(WEB, Query(what="metrics"), rm="", session="", ref="q")
    assert (sent.to, sent.header.ref) == (WEB, "q")
    answer = decode_body(Answer, sent.body)
    assert answer.status == 200
    return decode_families(answer.body)


def samples(bench: BrokerBench, name: str) -> dict[tuple[str, ...], float]:
    return dict(sample for family in asked(bench) if family.name == name for sample in family.samples)


def tells(bench: BrokerBench, peer: str, *told: Family) -> None:
    body = encode_families([report_process_up(peer), *told])
    assert bench.hear(peer, Figures(families=body), rm="", session="") == []


def test_what_a_process_has_told_is_told_on() -> None:
    bench = BrokerBench()
    tells(bench, RMPROXY, gauge("windows", "Windows.", (), [((), 7)]))
    assert samples(bench, "windows") == {(): 7}
    assert samples(bench, UP) == {(RMPROXY, ""): 1, (SUPERVISOR, ""): 0}


def test_one_that_is_silent_leaves_nothing_but_that_it_is() -> None:
    bench = BrokerBench()
    tells(bench, RMPROXY, gauge("windows", "Windows.", (), [((), 7)]))
    bench.wait(bench.now + REPORT_MAX_AGE_S)
    assert samples(bench, "windows") == {}
    assert samples(bench, UP) == {(RMPROXY, ""): 0, (SUPERVISOR, ""): 0}


def test_supervisors_of_several_hosts_tell_the_same_apart() -> None:
    bench = HostsBench(FakeHost("a"), FakeHost("b"))
    bench.register("x", 3)
    for name in "ab":
        figures = [
            gauge("children", "Children.", ("role",), [(("broker",), 1)]),
            report_process_up(f"supervisor/{name}"),
        ]
        bench.send(f"supervisor/{name}", Figures(families=encode_families(figures)))
    bench.send("supervisor/b", HostLeaves())
    bench.settle()
    _, page = bench.ask(Query(what="metrics"))
    found = {one.name: dict(one.samples) for one in decode_families(page.encode())}
    names = ["children", "yunishard_hosts", "yunishard_host_partitions", "yunishard_partition_moves_total"]
    assert [found[name] for name in names[1:]] == [
        {("ready",): 1, ("draining",): 0, ("lost",): 1},
        {("a",): 3, ("b",): 0},
        {("lost",): 1, ("drain",): 0, ("rebalance",): 0, ("unserved",): 0},
    ]
    labels = [labels for one in decode_families(page.encode()) if one.name == "children" for labels, _ in one.samples]
    assert sorted(labels) == [("broker", "a"), ("broker", "b")]


def test_what_cannot_be_read_is_noted_and_changes_nothing() -> None:
    bench = BrokerBench()
    tells(bench, RMPROXY)
    bench.hear(RMPROXY, Figures(families=b"{}"), rm="", session="")
    assert samples(bench, UP)[RMPROXY, ""] == 1
    assert bench.broker.state.warnings[-1].startswith("the metrics of rmproxy cannot be read: ")


def test_nobody_else_tells_figures() -> None:
    bench = BrokerBench()
    bench.hear("stranger", Figures(families=encode_families([report_process_up(RMPROXY)])), rm="", session="")
    assert samples(bench, UP) == {(RMPROXY, ""): 0, (SUPERVISOR, ""): 0}


@pytest.mark.parametrize(("peer", "what"), [(WEB, "partition"), (PROXY, "metrics")])
def test_without_a_partition_only_the_web_service_is_answered_and_only_about_figures(peer: str, what: str) -> None:
    [sent] = BrokerBench().hear(peer, Query(what=what), rm="", session="", ref="q")
    assert said([sent]) == [Answer(status=404, body=b"Partition not found")]


def test_what_happens_is_counted() -> None:
    bench = registered()
    assert samples(bench, "yunishard_broker_rollouts_total")["committed",] == 1
    assert samples(bench, "yunishard_broker_record_writes_total")["durable",] > 0
    assert samples(bench, "yunishard_broker_managers") == {("there",): 1, ("away",): 0}
    assert samples(bench, "yunishard_broker_partitions") == {("running",): 1, ("starting",): 0, ("leaving",): 0}
    [took] = [family for family in asked(bench) if family.name == "yunishard_broker_rollout_seconds"]
    assert sum(took.distributions[0][1]) == 1
    bench.away()
    assert samples(bench, "yunishard_broker_managers") == {("there",): 0, ("away",): 1}


def test_a_configuration_that_is_not_carried_out_is_counted_by_why() -> None:
    bench = registered()
    [ask] = [one for one in bench.update(ONE_QUEUE.replace("batch", "other")) if one.header.kind == "PrepareConfig"]
    bench.vote(ask, "no room")
    bench.disk_problem = "full"
    bench.agree(bench.update(ONE_QUEUE.replace("batch", "another")))
    outcomes = samples(bench, "yunishard_broker_rollouts_total")
    assert {outcome: count for (outcome,), count in outcomes.items() if count} == {
        "committed": 1,
        "objected": 1,
        "unrecorded": 1,
    }
    assert samples(bench, "yunishard_broker_record_writes_total")["refused",] == 1


def test_a_worker_that_comes_back_is_counted_by_what_it_had() -> None:
    bench = registered()
    bench.returns(PARTITION)
    bench.speaks(PARTITION)
    bench.lost(PARTITION)
    found = samples(bench, "yunishard_broker_recoveries_total")
    assert (found["goes_on",], found["lost",]) == (1, 1)


def test_nodes_for_a_partition_that_an_rm_does_not_have_are_counted_and_listed() -> None:
    bench = registered()
    for _ in range(2):
        bench.hear(PROXY, NodesAstray(count=2))
    bench.hear(PROXY, NodesAstray(count=2), rm="rm-9")  # who is not registered
    assert samples(bench, "yunishard_rm_failed_nodes_total") == {(RM,): 4}
    [listing] = said(bench.hear(WEB, ListPartitions(), rm="", session="", ref="q"))
    assert isinstance(listing, PartitionList)
    assert [one.nodes_astray for one in listing.managers] == [4]


def test_what_the_shell_tells_of_the_process_is_among_it() -> None:
    bench = BrokerBench()
    own: list[Sample] = [((), 3)]
    bench.broker.metrics.process_families = lambda: [gauge("own", "Own.", (), own)]
    assert samples(bench, "own") == {(): 3}


def test_every_proxy_is_reported_until_it_is_silent() -> None:
    bench = BrokerBench()
    for peer in ("rmproxy/1", "rmproxy/b"):
        tells(bench, peer, gauge("windows", "Windows.", ("process",), [((process_label(peer),), 7)]))
    assert samples(bench, "windows") == {(RMPROXY,): 7, ("rmproxy/b",): 7}
    bench.wait(bench.now + REPORT_MAX_AGE_S / 2)
    tells(bench, "rmproxy/b")
    bench.wait(bench.now + REPORT_MAX_AGE_S / 2)
    assert samples(bench, UP) == {("rmproxy/b", ""): 1, (SUPERVISOR, ""): 0}, "one proxy is enough for the role"
