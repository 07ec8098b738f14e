from tests.kubernetes_shim.shim_builders import make_node, make_pod
from tests.kubernetes_shim.shim_world import World, with_nodes
from yunishard.kubernetes_shim.actions import Failure, SendReport
from yunishard.kubernetes_shim.shim import Shim

QUEUE = {"queue": "root.a"}


def running() -> World:
    """A world with a bound pod, a foreign pod and one that waits, of which the shim starts again."""
    world = with_nodes("n1", cpu="1")
    world.api.set_node(make_node("n2", unschedulable=True))
    world.api.set_pod(make_pod("p1", labels=QUEUE))
    world.api.set_pod(make_pod("f1", scheduler="other", node="n1", phase="Running"))
    world.settle()
    world.api.set_pod(make_pod("p2", labels=QUEUE, created="2026-01-31T12:00:06Z"))
    world.settle()
    return world


def test_a_restarted_shim_reports_what_runs_before_anything_is_placed() -> None:
    world = running()
    world.start_shim()
    report = world.state.outbox.report
    assert isinstance(report, SendReport)
    assert [(one.node_id, one.action) for one in report.nodes] == [("n1", 1), ("n2", 6)]
    assert [one.tags["application.create.force"] for one in report.applications] == ["true"]
    assert [(one.allocation_key, one.node_id) for one in report.allocations] == [("uid-f1", "n1"), ("uid-p1", "n1")]
    world.settle()
    world.check()
    assert world.bound == {"p1": "n1"}


def test_a_partition_that_lost_its_state_gets_everything_again_with_the_asks() -> None:
    world = running()
    world.restart_partition()
    world.step_from_core()
    report = world.state.outbox.report
    assert report is not None
    assert [one.allocation_key for one in report.allocations] == ["uid-f1", "uid-p1", "uid-p2"]
    world.settle()
    world.check()


def test_messages_to_the_core_wait_for_the_end_of_the_report() -> None:
    world = running()
    world.restart_partition()
    world.step_from_core()
    before = len(world.to_core)
    world.api.remove_pod("uid-p1")
    world.step_watch("pods")
    assert len(world.to_core) == before
    world.settle()
    world.check()
    assert world.bound == {"p2": "n1"}


def test_a_report_that_failed_is_repeated_after_a_second() -> None:
    world = running()
    world.restart_partition()
    world.step_from_core()
    report = world.state.outbox.report
    assert report is not None
    world.shim.handle_outcome(report, Failure(message="counts differ"), world.now)
    world.to_core.clear()
    world.pass_time(1)
    assert world.state.outbox.report is not report
    world.settle()
    world.check()


def test_an_earlier_report_ends_nothing() -> None:
    world = running()
    world.restart_partition()
    world.step_from_core()
    earlier = world.state.outbox.report
    world.restart_partition()
    world.step_from_core()
    assert earlier is not None
    world.shim.handle_outcome(earlier, None, world.now)
    assert world.state.outbox.report is not None


def test_nothing_is_sent_before_all_is_listed_and_a_session_exists() -> None:
    world = running()
    shim = Shim(world.settings)
    shim.handle_registered(0)
    assert shim.take_actions() == []
    shim.handle_listed(0)
    assert [type(one) for one in shim.take_actions()] == [SendReport]
