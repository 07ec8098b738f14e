from yunishard import AddApplicationRequest, NodeInfo, ask, release, removal
from yunishard.kubernetes_shim.actions import (
    DeletePod,
    Outbox,
    SendAllocations,
    SendApplications,
    SendConfiguration,
    SendNodes,
    SendReport,
)

ASK, OTHER = ask("a1", "app", {"vcore": 1}), ask("a2", "app", {"vcore": 1})
RELEASE = release("app", "a0")


def test_items_for_the_core_that_follow_each_other_are_one_message() -> None:
    outbox = Outbox()
    outbox.send_node(NodeInfo(node_id="n1"))
    outbox.send_node(NodeInfo(node_id="n2"))
    outbox.send_allocation(ASK)
    outbox.send_allocation(OTHER)
    outbox.send_release(RELEASE)
    assert outbox.take() == [
        SendNodes([NodeInfo(node_id="n1"), NodeInfo(node_id="n2")]),
        SendAllocations([ASK, OTHER], [RELEASE]),
    ]
    assert outbox.take() == []


def test_an_ask_after_a_release_is_in_another_message_because_the_core_handles_releases_last() -> None:
    outbox = Outbox()
    outbox.send_release(RELEASE)
    outbox.send_allocation(ASK)
    assert outbox.take() == [SendAllocations(releases=[RELEASE]), SendAllocations([ASK])]


def test_an_application_after_a_removal_is_in_another_message() -> None:
    outbox = Outbox()
    new, gone = AddApplicationRequest(application_id="app"), removal("app")
    outbox.add_application(new)
    outbox.remove_application(gone)
    outbox.add_application(new)
    assert outbox.take() == [SendApplications([new], [gone]), SendApplications([new])]


def test_a_report_replaces_what_was_not_sent_and_holds_what_follows() -> None:
    outbox = Outbox()
    outbox.send_allocation(ASK)
    outbox.send_configuration(SendConfiguration("partitions: []"))
    report = SendReport("start")
    outbox.begin_report(report)
    outbox.send_allocation(OTHER)
    delete = DeletePod(namespace="d", name="p", uid="u")
    outbox.write(delete)
    assert outbox.take() == [report, delete]
    outbox.end_report()
    assert outbox.take() == [SendConfiguration("partitions: []"), SendAllocations([OTHER])]
