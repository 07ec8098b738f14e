import pytest

from common.rm_messages import NODE_CREATE_DRAIN, NODE_DECOMMISSION, NODE_DRAIN_TO_SCHEDULABLE, NODE_UPDATE
from partition_worker.engine.predicates.evaluation import DEADLINE_S
from tests.builders import PROVIDED_CREATE, apps, asks, foreign, nodes, released
from tests.partition_worker.engine.predicates.plugins import Broken, Rack
from tests.trial import Trial
from tests.twins import Twins, remember, twin


def test_a_queue_that_placement_made_is_there_and_goes_when_it_is_empty() -> None:
    queues = "root.p parent template.max=memory:8 template.maxapps=2 template.application.sort.policy=fair"
    one = Trial(queues, rules=(PROVIDED_CREATE,), made=Twins)
    one.does(nodes("n1 memory=20"), apps("app-1 root.p.x", "app-2 root.p.y"), asks("app-1 a1 memory=4"))
    made = twin(remember(one)).tree.find("root.p.x")
    assert made is not None
    assert (made.maximum, made.max_applications, made.managed) == ({"memory": 8}, 2, False)
    assert made.policies.application_sort == "fair"
    one.does(asks("app-1 a2 memory=6"), released("app-1 a1")).waits(60)
    one.does(released("app-1 a2")).waits(60)
    assert twin(one).tree.find("root.p.x") is None


def test_what_a_namespace_may_use_is_still_the_limit() -> None:
    quota = '{"resources":{"memory":{"value":5}}}'
    one = Trial("root.p parent", rules=(PROVIDED_CREATE,), made=Twins)
    one.does(nodes("n1 memory=20"), apps(f"app-1 root.p.x tag.namespace.resourcequota={quota}"))
    remember(one).does(asks("app-1 a1 memory=4", "app-1 a2 memory=4"))
    assert one.running == ["a1 on n1"]


def test_a_queue_drains_and_goes_as_it_would_have() -> None:
    one = Trial("root.a adminacl=ann; root.b", made=Twins).does(nodes("n1 memory=9"), apps("app-1 root.a"))
    one.does(asks("app-1 a1 memory=4")).reconfigures("root.b")
    remember(one).waits(3700)
    assert any("has been draining for 1.0 hours" in line and "ann" in line for line in one.told())
    one.does(released("app-1 a1")).waits(60)
    assert twin(one).tree.find("root.a") is None


def test_a_queue_beyond_its_maximum_is_brought_down_when_it_would_have_been() -> None:
    one = Trial("root.a max=memory:9 quota.preemption.delay=20s", quota_preemption=True, made=Twins)
    one.does(nodes("n1 memory=20"), apps("app-1 root.a"), asks(*(f"app-1 a{n} memory=3 victim" for n in range(3))))
    one.reconfigures("root.a max=memory:4 quota.preemption.delay=20s")
    one.told()
    assert remember(one.waits(10)).waits(9).told() == []
    assert len(one.waits(3).told()) == 1


def test_what_was_looked_into_in_vain_is_left_alone_for_as_long() -> None:
    """Also where only some nodes would do, and nobody asks for that any more who could be asked what it was."""
    one = Trial("root.a guaranteed=memory:8 preemption.delay=1s; root.b", made=Twins)
    one.does(nodes("n1 memory=8"), apps("app-1 root.a", "app-2 root.b"), asks("app-2 b1 memory=8"))
    forbidden = "created=100 preemptor tag.yunishard/forbiddenNodes=n7"
    one.does(asks(f"app-1 a1 memory=9 {forbidden}"), nodes("n2 memory=9 ", action=2)).waits(3)
    tried = one.queue("root.a").preemption_tried
    one.does(released("app-1 a1"))
    remember(one)
    assert twin(one).tree.root.children["a"].preemption_tried == tried != {}
    one.does(asks(f"app-1 a2 memory=9 {forbidden}")).waits(20)


def test_counts_of_a_queue_go_on() -> None:
    one = Trial(made=Twins).does(nodes("n1 memory=9"), apps("app-1 root.a"), asks("app-1 a1 memory=4 on=n1"))
    remember(one).does(released("app-1 a1"))
    found = twin(one).tree.find("root.a")
    assert found is not None
    assert (found.bound, found.released, found.reached["Running"]) == (1, 1, 1)


@pytest.mark.parametrize("policy", ["fair", "binpacking"])
def test_nodes_are_tried_in_the_same_order(policy: str) -> None:
    """Also one on which something foreign came or went: it has not moved."""
    one = Trial(nodes=policy, made=Twins).does(
        nodes("n1 memory=20", "n2 memory=20", "n3 memory=20"), apps("app-1 root.a")
    )
    one.does(asks("app-1 a1 memory=6", "app-1 a2 memory=3"), foreign("f1 n3 memory=15", "f2 n2 memory=2"))
    remember(one).does(*(asks(f"app-1 b{number} memory=2") for number in range(4)))
    remember(one).does(released("- f1"), *(asks(f"app-1 c{number} memory=2") for number in range(4)))
    assert len(one.running) == 10


def test_what_is_foreign_keeps_its_room_until_it_goes() -> None:
    one = Trial(made=Twins).does(nodes("n1 memory=10"), apps("app-1 root.a"), foreign("f1 n1 memory=8"))
    remember(one).does(asks("app-1 a1 memory=4"))
    assert one.running == []
    assert one.does(released("- f1")).running == ["a1 on n1"]


def test_nodes_drain_shrink_and_go_afterwards() -> None:
    one = Trial(made=Twins).does(nodes("n1 memory=10", "n2 memory=10"), nodes("n3 memory=10", action=NODE_CREATE_DRAIN))
    one.does(apps("app-1 root.a"), asks("app-1 a1 memory=8", "app-1 a2 memory=8", "app-1 a3 memory=8"))
    remember(one).does(nodes("n1", action=NODE_DECOMMISSION), nodes("n2 memory=9", action=NODE_UPDATE))
    remember(one).does(nodes("n3", action=NODE_DRAIN_TO_SCHEDULABLE))
    assert one.running == ["a2 on n2", "a3 on n3"]


def test_the_next_node_has_the_next_rank() -> None:
    one = Trial(made=Twins).does(nodes("n1 memory=10", "n2 memory=10"), nodes("n2", action=NODE_DECOMMISSION))
    remember(one).does(nodes("n3 memory=10"))
    node = twin(one).nodes.get("n3")
    assert node is not None
    assert node.rank == 2


def test_what_a_node_says_of_itself_is_known() -> None:
    one = Trial(made=Twins).does(nodes("n1 memory=10 tag.si/instance-type=large tag.yunishard/taints=gpu:NoSchedule"))
    remember(one).does(apps("app-1 root.a"), asks("app-1 a1 memory=4"))
    assert one.running == []
    one.does(asks("app-1 a2 memory=4 tag.yunishard/tolerations=gpu"))
    assert one.running == ["a2 on n1"]


def asking() -> Trial:
    one = Trial(made=Twins)
    one.partition.nodes.predicates.asks_manager = True
    return one.does(nodes("n1 memory=10", "n2 memory=10", "n3 memory=10"), apps("app-1 root.a"))


def test_an_answer_is_taken_by_whom_it_reaches() -> None:
    one = asking().does(asks("app-1 a1 memory=4")).waits(0)
    remember(one).answers("a1 on n1: no", "a1 on n3: no")
    assert one.running == ["a1 on n2"]


def test_what_was_said_is_not_asked_again() -> None:
    one = asking().does(asks("app-1 a1 memory=4")).waits(0).answers("a1 on n1: no", "a1 on n2: no", "a1 on n3: no")
    asked = len(one.asked)
    remember(one).does(released("app-1 x")).waits(1)
    assert len(one.asked) == asked
    one.waits(40)
    assert len(one.asked) > asked, "it may be another by now"


def test_a_silence_is_waited_for_and_paused_after() -> None:
    one = asking().does(asks("app-1 a1 memory=4")).waits(DEADLINE_S / 2)
    remember(one).waits(DEADLINE_S)
    remember(one).waits(0.5)
    assert len(one.asked) == 1
    remember(one).waits(0.5).answers()
    assert len(one.running) == 1


def test_what_was_said_of_a_node_that_is_gone_does_not_hold() -> None:
    one = asking().does(asks("app-1 a1 memory=4", "app-1 a2 memory=40")).waits(0)
    one.does(nodes("n1", action=NODE_DECOMMISSION))
    remember(one).does(nodes("n1 memory=10")).answers()
    remember(one).waits(1)
    assert len(one.running) == 1


def test_where_something_could_not_be_started_is_remembered() -> None:
    one = asking().does(asks("app-1 a1 memory=4")).waits(0).answers()
    (before,) = one.running
    one.does(released("app-1 a1 type=SCHEDULING_FAILED_ON_RM"))
    remember(one).waits(0.1).answers()
    assert one.running not in ([], [before])


def test_rules_of_plug_ins_are_those_of_the_new_worker() -> None:
    one = Trial(plugins=[Rack()], made=Twins).does(
        nodes("n1 memory=9 tag.rack=r1", "n2 memory=9"), apps("app-1 root.a")
    )
    remember(one.takes(asks("app-1 a1 memory=4 tag.rack=r1"))).settles()
    assert one.running == ["a1 on n1"]


def test_what_is_wrong_with_a_predicate_is_told_once() -> None:
    one = Trial(plugins=[Broken()], made=Twins).does(nodes("n1 memory=9"), apps("app-1 root.a"))
    one.does(asks("app-1 a1 memory=4 tag.broken=yes"))
    predicates = twin(remember(one)).nodes.predicates
    one.does(nodes("n2 memory=9"))
    assert predicates.complaints == []
