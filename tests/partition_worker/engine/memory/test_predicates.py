from common.rm_messages import NODE_DECOMMISSION
from partition_worker.engine.predicates.verdicts import DEADLINE_S
from tests.builders import apps, asks, nodes, released
from tests.partition_worker.engine.predicates.plugins import Broken, Rack
from tests.trial import Trial
from tests.twins import Twins, remember, twin


def asking() -> Trial:
    one = Trial(made=Twins)
    one.partition.fleet.predicates.asks_manager = True
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
    predicates = twin(remember(one)).fleet.predicates
    one.does(nodes("n2 memory=9"))
    assert predicates.taken_complaints() == []
