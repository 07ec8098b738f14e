"""The proxy counts messages and refusals."""

from tests.machines import PARTITION, RM, SESSION, arrives
from tests.rmproxy.test_proxy import PEER, answered, called
from yunishard.common.messages.rm_messages import (
    Allocation,
    AllocationRequest,
    Left,
    NodeInfo,
    NodeRequest,
    Received,
    Registered,
)
from yunishard.common.process.metrics import Sample
from yunishard.rmproxy.metrics import collect_proxy_metrics
from yunishard.rmproxy.proxy import BROKER, Proxy

ASK = AllocationRequest(allocations=[Allocation(allocation_key="k", application_id="a")])

OWN = "rmproxy/b"


def registered() -> Proxy:
    """A proxy with a registered RM, whose counters begin after the registration."""
    proxy = Proxy()
    answered(proxy, called(proxy))
    proxy.sessions[RM].messages_in = proxy.sessions[RM].messages_out = 0
    return proxy


def samples(proxy: Proxy, name: str) -> dict[tuple[str, ...], float]:
    found: list[list[Sample]] = [family.samples for family in collect_proxy_metrics(proxy, OWN) if family.name == name]
    return dict(found[0])


def test_messages_are_counted_for_each_rm_and_direction() -> None:
    one = registered()
    one.handle(arrives(PEER, ASK, partition=PARTITION, seq=1), 0)
    one.handle(arrives(BROKER, Received(), partition=PARTITION, ack=1), 0)
    assert samples(one, "yunishard_rmproxy_messages_total") == {(RM, "in", OWN): 1, (RM, "out", OWN): 1}


def test_commands_in_flight_are_reported_until_acknowledged() -> None:
    one = registered()
    one.handle(arrives(PEER, ASK, partition=PARTITION, seq=1), 0)
    assert samples(one, "yunishard_rmproxy_window_messages")[RM, PARTITION, OWN] == 1
    one.handle(arrives(BROKER, Received(), partition=PARTITION, ack=1), 0)
    assert samples(one, "yunishard_rmproxy_window_messages")[RM, PARTITION, OWN] == 0


def test_refusals_are_counted_by_code() -> None:
    one = registered()
    one.handle(arrives(PEER, ASK, session="another"), 0)
    one.handle(arrives(PEER, Registered(partitions=[])), 0)
    refused = samples(one, "yunishard_rmproxy_refusals_total")
    assert {code: n for (code, _), n in refused.items() if n} == {"unknown-session": 1, "unknown-kind": 1}
    assert refused["window", OWN] == 0


def test_messages_of_unregistered_rms_are_not_counted() -> None:
    one = registered()
    one.handle(arrives(PEER, ASK, rm="anybody"), 0)
    assert samples(one, "yunishard_rmproxy_messages_total") == {(RM, "in", OWN): 0, (RM, "out", OWN): 0}


def test_later_sessions_of_an_rm_continue_its_counters() -> None:
    one = registered()
    one.handle(arrives(PEER, ASK, partition=PARTITION, seq=1), 0)
    answered(one, called(one, session="another"))
    counted = samples(one, "yunishard_rmproxy_messages_total")
    assert counted[RM, "in", OWN] == 2
    assert counted[RM, "out", OWN] == 2


def test_the_counters_of_an_rm_go_with_it() -> None:
    one = registered()
    one.handle(arrives(PEER, ASK, partition=PARTITION, seq=1), 0)
    one.handle(arrives(BROKER, Left()), 0)
    assert samples(one, "yunishard_rmproxy_messages_total") == {}
    assert samples(one, "yunishard_rmproxy_sessions") == {("native", OWN): 0, ("grpc", OWN): 0}


def test_sessions_are_counted_by_port() -> None:
    proxy = Proxy()
    answered(proxy, called(proxy))
    answered(proxy, called(proxy, "grpc:rm-2", rm="rm-2", session=SESSION))
    assert samples(proxy, "yunishard_rmproxy_sessions") == {("native", OWN): 1, ("grpc", OWN): 1}


def test_nodes_for_a_partition_that_is_not_theirs_are_told_to_the_broker() -> None:
    one = registered()
    nodes = NodeRequest(nodes=[NodeInfo(node_id=name, action=1) for name in ("n1", "n2")])
    sends = one.handle(arrives(PEER, nodes, partition="zzz", seq=1), 0)
    assert [(send.to, send.header.kind, send.header.rm) for send in sends] == [
        (BROKER, "NodesAstray", RM),
        (PEER, "NodeResponse", RM),
    ]
