"""Values without sense or measure: a worker refuses them or lives with them."""

import pytest

from tests.machines import PARTITION, header, said
from tests.partition_worker.bench import APP, NOW, Bench, ask, placed
from yunishard.common.config.validation import load
from yunishard.common.messages.control_messages import CommitConfig, ConfigVote, PrepareConfig
from yunishard.common.messages.query_messages import Answer, Query
from yunishard.common.messages.rm_messages import (
    AddApplicationRequest,
    Allocation,
    AllocationRequest,
    ApplicationRequest,
    ApplicationResponse,
    NodeInfo,
    NodeRequest,
    UserGroupInformation,
)
from yunishard.common.messages.wire import Incoming, decode_body
from yunishard.common.names import BROKER


@pytest.mark.parametrize("policy", ["fair", "binpacking"])
def test_weights_without_a_meaning_do_not_stop_a_worker(policy: str) -> None:
    config = f"""
partitions:
  - name: default
    nodesortpolicy: {{type: {policy}, resourceweights: {{vcore: .inf, memory: .nan, pods: 1e308}}}}
    queues: [{{name: root, submitacl: "*", queues: [{{name: batch}}]}}]
"""
    bench = Bench(running=False)
    [vote] = said(bench.hear(PrepareConfig(rollout=1, config=load(config).partitions[0])))
    assert isinstance(vote, ConfigVote)
    if vote.reason:
        return
    bench.hear(CommitConfig(rollout=1))
    size = {"vcore": 2**63 - 1, "memory": 2**63 - 1, "pods": 2**63 - 1}
    bench.tell(NodeRequest(nodes=[NodeInfo(node_id=n, action=1, schedulable_resource=size) for n in "abc"]))
    bench.tell(APP)
    bench.tell(ask("k1", "k2", "k3"))
    assert placed(bench.schedule()) == ["k1", "k2", "k3"]
    bench.check()


@pytest.mark.parametrize("what", ["partition", "queues", "nodes", "users", "metrics"])
def test_sums_beyond_64_bits_can_be_shown(what: str) -> None:
    bench = Bench()
    bench.tell(APP)
    most = 2**63 - 1
    size = {"vcore": most, "memory": most}
    bench.tell(NodeRequest(nodes=[NodeInfo(node_id=n, action=1, schedulable_resource=size) for n in "abc"]))
    asks = [Allocation(allocation_key=k, application_id="a", resource_per_alloc=size) for k in "klmno"]
    bench.tell(AllocationRequest(allocations=asks))
    assert len(placed(bench.schedule())) == 3
    [answer] = said(bench.hear(Query(what=what, name="default")))
    assert isinstance(answer, Answer)
    assert answer.status == 200
    bench.check()


@pytest.mark.parametrize("kind", ["Query", "KillApplication", "MoveApplication", "Schedule"])
def test_a_question_that_cannot_be_read_is_answered(kind: str) -> None:
    bench = Bench()
    question = Incoming(BROKER, header(kind, partition=PARTITION, ref="webservice 7", rm="", session=""), b"\x91\x01")
    [told] = bench.worker.handle(question, NOW)
    answer = decode_body(Answer, told.body)
    assert (told.to, told.header.ref, answer.status) == (BROKER, "webservice 7", 400)
    assert answer.body.startswith(f"{kind}: Expected `object`, got `array`".encode())


@pytest.mark.parametrize("kind", ["PrepareConfig", "CommitConfig", "Settings", "Heartbeat"])
def test_an_order_that_cannot_be_read_changes_nothing(kind: str) -> None:
    bench = Bench()
    bench.furnish()
    order = Incoming(BROKER, header(kind, partition=PARTITION), b"\x91\x01")
    assert bench.worker.handle(order, NOW) == []
    assert bench.worker.host.warnings[-1].startswith(f"a message from broker cannot be read: {kind}: ")
    bench.tell(ask("k1"))
    assert placed(bench.schedule()) == ["k1"]


def test_a_queue_path_without_end_rejects_its_application() -> None:
    bench = Bench(running=False)
    rule = "placementrules: [{name: provided, create: true}], queues: [{name: root, submitacl: '*'}]"
    bench.configure(f"partitions: [{{name: default, {rule}}}]")
    path = "root." + ".".join("a" * 10_000)
    user = UserGroupInformation(user="u")
    [answer] = said(bench.tell(ApplicationRequest(
        new=[AddApplicationRequest(application_id="a", queue_name=path, ugi=user)]
    )))  # fmt: skip
    assert isinstance(answer, ApplicationResponse)
    assert len(answer.rejected) == 1
