from tests.builders import PROVIDED_CREATE, apps, asks, nodes, released
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
