from common.rm_messages import SyncBegin, SyncEnd
from partition_worker.engine.applications.states import AppState
from tests.builders import apps, asks, config, nodes, released
from tests.trial import Trial
from tests.twins import Twins, remember, twin


def test_the_ledger_of_preemptions_and_its_truces_go_on() -> None:
    one = Trial("root.a guaranteed=memory:8 preemption.delay=1s; root.b", made=Twins)
    one.does(nodes("n1 memory=8"), apps("app-1 root.a", "app-2 root.b"))
    one.does(*(asks(f"app-2 b{number} memory=2 victim") for number in range(4)))
    one.does(asks("app-1 a1 memory=4 preemptor")).waits(2)
    other = twin(remember(one))
    assert list(other.preemptions) == list(one.partition.preemptions)
    assert len(other.preemptions) == 1
    assert list(other.preemptions.truces.wins()) == list(one.partition.preemptions.truces.wins()) != []
    one.does(asks("app-1 a2 memory=4 preemptor")).waits(40)


def test_a_submission_goes_on_when_its_user_has_been_looked_up() -> None:
    one = Trial(resolver="os", made=Twins).does(nodes("n1 memory=9"), apps("app-1 root.a", "app-2 root.a user=eve"))
    one.does(asks("app-1 a1 memory=4", "app-1 a2 memory=1"), released("app-1 a2"))
    remember(one).finds("bob", "dev")
    assert one.running == ["a1 on n1"]
    remember(one).finds("eve", problem="no such user")
    assert list(one.partition.rejections) == ["app-2"]


def test_groups_that_were_learned_are_known_for_as_long() -> None:
    one = Trial(resolver="os", made=Twins).does(apps("app-1 root.a")).finds("bob", "dev")
    one.told()
    remember(one).does(apps("app-2 root.a")).waits(301)
    assert one.told()[-1] == "app-2 accepted"
    assert one.does(apps("app-3 root.a")).told() == ["the groups of bob are wanted"]


def test_groups_are_looked_up_as_the_first_configuration_said() -> None:
    one = Trial(resolver="os", made=Twins)
    one.partition.reconfigure(config(resolver=""), one.now)
    remember(one).does(apps("app-1 root.a"))
    assert one.told()[-1] == "the groups of bob are wanted"


def test_counters_go_on() -> None:
    one = Trial(made=Twins).does(nodes("n1 memory=9"), apps("app-1 root.a", "app-2 root.x"), asks("app-1 a1 memory=4"))
    counters = twin(remember(one)).counters
    one.does(asks("app-1 a2 memory=4"), asks("app-9 a3 memory=4"))
    assert counters == one.partition.counters
    assert (counters.allocated, counters.submitted, counters.refused, counters.rejected) == (2, 2, 1, 1)
    assert counters.entries(AppState.RUNNING) == 1


def test_a_report_that_has_begun_comes_to_its_end() -> None:
    one = Trial(made=Twins).does(nodes("n1 memory=9", "n2 memory=9"), apps("app-1 root.a"))
    one.takes(SyncBegin(), nodes("n1 memory=9"))
    remember(one).takes(SyncEnd(nodes=1))
    assert [node.node_id for node in twin(one).fleet] == ["n1"]
