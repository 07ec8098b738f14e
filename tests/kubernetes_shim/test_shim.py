from kubernetes_shim.actions import BindPod, EmitEvent, SendAllocations, SendApplications, SendReport
from kubernetes_shim.objects import NODES, PODS
from kubernetes_shim.settings import Settings
from kubernetes_shim.shim import Shim
from tests.kubernetes_shim.shim_builders import make_node, make_pod
from yunishard import (
    AcceptedApplication,
    Allocation,
    AllocationResponse,
    ApplicationResponse,
)

PARTITION = "mycluster_default"


def test_a_pod_is_asked_for_and_bound() -> None:
    shim = Shim(Settings())
    shim.handle_object(NODES, "added", make_node(), 0)
    shim.handle_listed(0)
    shim.handle_registered(0)
    (report,) = shim.take_actions()
    assert isinstance(report, SendReport)
    assert [one.node_id for one in report.nodes] == ["n1"]
    shim.handle_outcome(report, None, 0)
    pod = make_pod()
    shim.handle_object(PODS, "added", pod, 1)
    (submit,) = shim.take_actions()
    assert isinstance(submit, SendApplications)
    application_id = submit.new[0].application_id
    accepted = ApplicationResponse(accepted=[AcceptedApplication(application_id=application_id)])
    shim.handle_result(PARTITION, accepted, 1)
    (send, event) = shim.take_actions()
    assert isinstance(send, SendAllocations)
    assert isinstance(event, EmitEvent)
    assert [one.allocation_key for one in send.allocations] == ["uid-p1"]
    new = Allocation(allocation_key="uid-p1", application_id=application_id, node_id="n1")
    shim.handle_result(PARTITION, AllocationResponse(new=[new]), 1)
    bind = next(one for one in shim.take_actions() if isinstance(one, BindPod))
    assert bind == BindPod(namespace="default", name="p1", uid="uid-p1", node="n1")
    shim.handle_outcome(bind, None, 1)
    shim.handle_object(PODS, "modified", make_pod(node="n1"), 1)
    shim.handle_object(PODS, "deleted", make_pod(node="n1"), 1)
    released = [one for one in shim.take_actions() if isinstance(one, SendAllocations)]
    assert [one.allocation_key for one in released[0].releases] == ["uid-p1"]
