import json

import pytest

from tests.machines import PARTITION, arrives, config_of, header, said, sent
from tests.partition_worker.bench import APP, EPOCH, NEXT, NODES, NOW, Bench, ask, news, placed
from yunishard.common.config.validation import load
from yunishard.common.messages import session
from yunishard.common.messages.control_messages import (
    AbortConfig,
    CommitConfig,
    ConfigVote,
    GroupsFound,
    GroupsWanted,
    Hello,
    PrepareConfig,
    Repeat,
)
from yunishard.common.messages.query_messages import Answer, Query
from yunishard.common.messages.rm_messages import (
    NODE_DRAIN,
    RELEASES_IGNORED_MAX,
    AcceptedApplication,
    AcceptedNode,
    Ack,
    AllocationRelease,
    AllocationReleasesRequest,
    AllocationRequest,
    ApplicationResponse,
    NodeInfo,
    NodeRequest,
    NodeResponse,
    Received,
    Refused,
    RejectedNode,
    ReleasesIgnored,
)
from yunishard.common.messages.wire import NEVER, Incoming, decode_body
from yunishard.common.names import BROKER
from yunishard.partition_worker import rm_channel
from yunishard.partition_worker import worker as worker_module
from yunishard.partition_worker.partition_host import GROUPS, IGNORED_WARNING_S, PartitionHost
from yunishard.partition_worker.worker import BUDGET_DECISIONS, Worker

# Releases -----------------------------------------------------------------------------------------------------------


def released(*keys: str, application: str = "a") -> AllocationRequest:
    gone = [AllocationRelease(application_id=application, allocation_key=key) for key in keys]
    return AllocationRequest(releases=AllocationReleasesRequest(allocations_to_release=gone))


def test_a_release_without_effect_is_reported_without_a_number() -> None:
    bench = Bench()
    bench.furnish()
    bench.tell(ask("k1"))
    sends = bench.tell(released("k1", "k2", "k3"))
    reasons = [
        AllocationRelease(application_id="a", allocation_key=key, message="unknown to application a")
        for key in ("k2", "k3")
    ]
    assert [send for send in sends if send.header.kind == "ReleasesIgnored"] == [
        news(ReleasesIgnored(ignored=reasons), 0, 4)
    ]
    (other,) = bench.tell(released("k1", application="b"))[1:]
    assert decode_body(ReleasesIgnored, other.body).ignored[0].message == "application b is unknown"
    assert "ReleasesIgnored" not in [kind for _, kind, _ in bench.worker.host.channel.drain_sent()]


def test_a_report_of_ignored_releases_is_bounded() -> None:
    bench = Bench()
    bench.furnish()
    count = RELEASES_IGNORED_MAX + 7
    *_, last = bench.tell(released(*(f"k{number}" for number in range(count))))
    message = decode_body(ReleasesIgnored, last.body)
    assert (len(message.ignored), message.more) == (RELEASES_IGNORED_MAX, 7)
    assert bench.worker.host.releases_ignored == count


def test_ignored_releases_are_one_warning_a_minute() -> None:
    bench = Bench()
    bench.furnish()
    for _ in range(5):
        bench.tell(released("k2"))
    (warning,) = bench.worker.host.warnings
    assert warning == (
        "rm-1 sent a release of 'k2' of application 'a' that had no effect: unknown to application a "
        "(releases without effect since this process started: 1)"
    )
    bench.seq += 1
    later = arrives(BROKER, released("k2"), partition=PARTITION, seq=bench.seq)
    bench.worker.handle(later, NOW + IGNORED_WARNING_S)
    assert bench.worker.host.warnings[1].endswith("(releases without effect since this process started: 6)")


def test_actions_on_unknown_nodes_are_one_warning_a_minute() -> None:
    bench = Bench()
    bench.furnish()
    for name in ("n8", "n9"):
        bench.tell(NodeRequest(nodes=[NodeInfo(node_id=name, action=NODE_DRAIN)]))
    assert bench.worker.host.warnings == ["rm-1: node n8: unknown, action 3 has no effect"]


# Configuration ------------------------------------------------------------------------------------------------------


def test_it_says_hello_under_its_lease() -> None:
    hello = Worker(PartitionHost(partition=PARTITION, epoch=EPOCH)).make_hello()
    assert hello == sent(BROKER, Hello(role="worker"), rm="", session="", partition=PARTITION, epoch=EPOCH)


def test_an_empty_worker_waits_for_its_configuration() -> None:
    worker = Worker(PartitionHost(partition=PARTITION, epoch=EPOCH))
    assert worker.deadline == NEVER
    assert worker.tick(NOW) == []
    assert worker.handle(arrives(BROKER, NODES, partition=PARTITION, seq=1), NOW) == []


def test_it_votes_yes_and_nothing_changes_before_the_commit() -> None:
    bench = Bench()
    bench.furnish()
    before = bench.worker.partition
    vote = bench.hear(PrepareConfig(rollout=9, config=config_of()), session=NEXT)
    assert vote == [sent(BROKER, ConfigVote(rollout=9), session="", partition=PARTITION, epoch=EPOCH)]
    assert bench.worker.partition is before
    assert bench.tell(ask("k"))[0].header.ack == 3
    assert bench.hear(AbortConfig(rollout=9)) == []
    assert bench.worker.partition is before


def test_it_votes_no_with_the_reason() -> None:
    config = load("partitions: [{name: default, queues: [{name: Root, submitacl: '*'}]}]").partitions[0]
    [vote] = said(Bench().hear(PrepareConfig(rollout=9, config=config)))
    assert isinstance(vote, ConfigVote)
    assert "partition cannot be created without root queue" in vote.reason


def test_a_commit_of_what_was_not_prepared_is_only_noted() -> None:
    """A worker that was started between the vote of its predecessor and the commit: it gets both again."""
    bench = Bench(running=False)
    assert bench.hear(CommitConfig(rollout=7)) == []
    assert bench.worker.host.warnings == ["commit of roll-out 7 ignored, as this worker has not prepared it"]
    bench.configure()
    assert bench.worker.partition is not None


def test_rules_that_cannot_be_built_are_a_warning_and_no_reason_against_the_partition() -> None:
    bench = Bench(running=False)
    bench.configure("partitions: [{name: default, placementrules: [{name: magic}], queues: [{name: root}]}]")
    (warning,) = bench.worker.host.warnings
    assert warning.startswith("no placement rule is active, so every application is rejected: unknown rule name")
    assert bench.worker.partition is not None


def test_a_commit_starts_a_new_session_from_empty() -> None:
    bench = Bench()
    bench.furnish()
    bench.tell(ask("k"))
    bench.schedule()
    bench.configure(session=NEXT)
    assert bench.worker.partition is not None
    assert bench.worker.partition.applications == {}
    assert bench.hear(ask("k"), seq=4) == []
    accepted = NodeResponse(accepted=[AcceptedNode(node_id="n1")], cause=1)
    assert bench.hear(NODES, seq=1, session=NEXT) == [news(accepted, 1, 1, session=NEXT)]


# Commands -----------------------------------------------------------------------------------------------------------


def test_each_command_is_answered_numbered_and_acknowledged() -> None:
    bench = Bench()
    nodes = NodeResponse(accepted=[AcceptedNode(node_id="n1")], cause=1)
    apps = ApplicationResponse(accepted=[AcceptedApplication(application_id="a")], cause=2)
    assert bench.tell(NODES) == [news(nodes, 1, 1)]
    assert bench.tell(APP) == [news(apps, 2, 2)]
    bench.tell(ask("k"))
    nothing = NodeRequest(nodes=[NodeInfo(node_id="n1", action=2)])
    assert bench.tell(nothing) == [news(Received(), 0, 4)]
    assert placed(bench.schedule()) == ["k"]
    bench.check()


def test_a_command_that_comes_again_is_acknowledged_and_has_no_effect() -> None:
    bench = Bench()
    bench.furnish()
    for seq in (1, 2):
        assert bench.hear(NODES, seq=seq) == [news(Received(), 0, 2)]
    assert bench.tell(ask("k"))


def test_a_gap_is_refused_and_what_is_missing_can_still_come() -> None:
    bench = Bench()
    bench.tell(NODES)
    refusal = Refused(code="gap", reason="message 3 came after 1: resume to send what is missing", seq=3)
    assert bench.hear(ask("k"), seq=3) == [news(refusal, 0, 1)]
    assert bench.tell(APP)[0].header.ack == 2


def test_unnumbered_commands_are_taken_as_they_come() -> None:
    bench = Bench()
    accepted = NodeResponse(accepted=[AcceptedNode(node_id="n1")], cause=1)
    assert bench.hear(NODES) == [news(accepted, 1, 0)]
    [again] = said(bench.hear(NODES))
    assert isinstance(again, NodeResponse)
    assert again.rejected == [
        RejectedNode(
            node_id="n1",
            reason="failure while adding new node, node rejected with error: \n"
            "failed to add node n1 to partition rm-1_default, error: partition rm-1_default has an existing node n1, "
            "node name must be unique",
        )
    ]


def test_the_mark_of_an_unnumbered_command_is_given_back_once_whatever_is_said_to_it() -> None:
    bench = Bench()
    assert [one.header.ref for one in bench.hear(NODES, ref="mark")] == ["", "mark"]
    malformed = Incoming(BROKER, header("AllocationRequest", partition=PARTITION, ref="mark"), b"\x91")
    assert [one.header.ref for one in bench.worker.handle(malformed, NOW)] == ["mark", ""]
    empty = NodeRequest()
    assert [one.header.ref for one in bench.hear(empty, ref="mark")] == ["mark"]


def test_a_malformed_command_is_refused_with_its_place_and_the_next_is_taken() -> None:
    bench = Bench()
    bench.furnish()
    body = b"\x81\xaballocations\x91\x81\xa8priority\xa1x"
    malformed = Incoming(BROKER, header("AllocationRequest", partition=PARTITION, seq=3, ref="a b"), body)
    reason = "AllocationRequest: Expected `int`, got `str` - at `$.allocations[0].priority`"
    refusal = Refused(code="malformed", reason=reason, seq=3)
    assert bench.worker.handle(malformed, NOW) == [news(refusal, 0, 3), news(Received(), 0, 3)]
    bench.seq = 3
    bench.tell(ask("k"))
    assert placed(bench.schedule()) == ["k"]


@pytest.mark.parametrize("seq", [-1, -(2**63), 2**64 - 1])
def test_numbers_beyond_all_sense_do_no_harm(seq: int) -> None:
    bench = Bench()
    bench.hear(NODES, seq=seq, ack=2**64 - 1)
    assert bench.tell(NODES)[0].header.seq == 1


@pytest.mark.parametrize("fields", [{"session": NEXT}, {"session": ""}])
def test_a_command_of_another_session_has_no_effect(fields: dict[str, str]) -> None:
    bench = Bench()
    assert bench.hear(NODES, seq=1, **fields) == []
    assert bench.tell(NODES)[0].header.seq == 1


def test_what_is_not_for_a_worker_is_only_noted() -> None:
    bench = Bench()
    assert bench.hear(Hello(role="worker")) == []
    assert bench.worker.host.notes == ["Hello from broker is not for a worker"]


# Numbers and windows ------------------------------------------------------------------------------------------------


def test_what_was_not_acknowledged_comes_again_when_the_rm_is_back() -> None:
    bench = Bench()
    first, second = bench.tell(NODES)[0], bench.tell(APP)[0]
    ack = {"epoch": EPOCH}
    third = bench.tell(ask("k"))[0]
    again = bench.hear(Repeat(), ack=1)
    assert again[0] == news(Received(), 0, 3)
    assert [(one.header.seq, one.body) for one in again[1:]] == [(2, second.body), (3, third.body)]
    assert all(one.header.ack == 3 for one in again)
    assert bench.hear(Repeat(), ack=3) == [news(Received(), 0, 3, **ack)]
    assert bench.hear(Repeat(), session=NEXT) == []
    assert first.header.seq == 1


def test_the_broker_is_told_that_the_retransmission_begins() -> None:
    bench = Bench()
    bench.tell(NODES)
    began, *_, last = bench.hear(Repeat(), ref="7")
    assert (began.header.kind, began.header.ref, last.header.seq) == ("Repeated", "7", 1)
    (began,) = bench.hear(Repeat(), session=NEXT, ref="8")
    assert (began.header.kind, began.header.ref) == ("Repeated", "8"), "there is nothing to retransmit"


def test_a_full_outbox_stops_scheduling_and_an_acknowledgement_starts_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "WINDOW", session.Window(messages=50))
    bench = Bench()
    bench.furnish()
    last = 0
    while last < session.WINDOW.messages:
        bench.hear(ask(f"k{last}"))
        last = bench.worker.tick(NOW)[-1].header.seq
    bench.hear(ask("one-more"))
    assert bench.worker.deadline > NOW
    assert placed(bench.worker.tick(NOW)) == []
    bench.hear(Ack(), ack=2 * session.WINDOW.messages, session=NEXT)
    assert bench.worker.deadline > NOW
    bench.hear(Ack(), ack=2 * session.WINDOW.messages)
    assert bench.worker.deadline <= NOW
    assert "one-more" in placed(bench.schedule())
    bench.check()


def test_acknowledgements_also_come_with_commands() -> None:
    bench = Bench()
    bench.furnish()
    bench.tell(ask("k"), ack=2)
    assert [one.header.seq for one in bench.hear(Repeat(), ack=0)][1:] == [3]


def test_a_cycle_makes_a_bounded_number_of_decisions() -> None:
    bench = Bench()
    bench.furnish()
    count = BUDGET_DECISIONS + 10
    bench.tell(ask(*(f"k{number}" for number in range(count))))
    assert len(placed(bench.worker.tick(NOW))) == BUDGET_DECISIONS
    assert bench.worker.deadline <= NOW
    assert len(placed(bench.worker.tick(NOW))) == 10
    assert bench.worker.deadline > NOW


def test_timers_go_off_even_when_the_outbox_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "WINDOW", session.Window(messages=50))
    bench = Bench()
    bench.furnish()
    bench.tell(ask("k"))
    bench.schedule()
    releases = AllocationReleasesRequest(allocations_to_release=[AllocationRelease(application_id="a")])
    bench.tell(AllocationRequest(releases=releases))
    bench.schedule()
    due = bench.worker.deadline
    assert NOW < due < NOW + 100
    while (
        not bench.worker.handle(arrives(BROKER, NODES, partition=PARTITION), NOW)[0].header.seq
        >= session.WINDOW.messages
    ):
        continue
    assert bench.worker.deadline == due
    assert any(
        m.updated[0].state == "Completed" for m in said(bench.worker.tick(due)) if isinstance(m, ApplicationResponse)
    )


# Groups that are looked up -------------------------------------------------------------------------------------------

LOOKS_UP = """
partitions:
  - name: default
    usergroupresolver: {type: os}
    queues: [{name: root, submitacl: "*", queues: [{name: batch}]}]
"""


def test_a_submission_that_needs_a_look_up_is_acknowledged_and_goes_on_with_the_answer() -> None:
    bench = Bench(running=False)
    bench.configure(LOOKS_UP)
    received, wanted = bench.tell(APP)
    assert received == news(Received(), 0, 1)
    assert (wanted.to, said([wanted])) == (GROUPS, [GroupsWanted(user="u")])
    found = arrives(GROUPS, GroupsFound(user="u", groups=["dev"]), rm="", session="")
    accepted = ApplicationResponse(accepted=[AcceptedApplication(application_id="a")], cause=2)
    assert bench.worker.handle(found, NOW) == [news(accepted, 1, 1)]
    bench.check()


def test_a_resolver_that_we_do_not_have_is_no_reason_against_the_partition() -> None:
    bench = Bench(running=False)
    bench.configure(LOOKS_UP.replace("os", "ldap"))
    bench.tell(APP)
    assert bench.worker.partition is not None
    assert bench.worker.partition.rejections["a"].reason.startswith("groups are not looked up by LDAP")


def test_nobody_else_may_say_who_is_in_which_group() -> None:
    bench = Bench(running=False)
    bench.configure(LOOKS_UP)
    bench.tell(APP)
    assert bench.hear(GroupsFound(user="u", groups=["admins"])) == []
    assert bench.worker.host.notes[-1] == "GroupsFound from broker is not for a worker"


def test_an_answer_that_comes_after_a_new_beginning_does_no_harm() -> None:
    found = arrives(GROUPS, GroupsFound(user="u", groups=["dev"]), rm="", session="")
    assert Bench(running=False).worker.handle(found, NOW) == []
    assert Bench().worker.handle(found, NOW) == []


# Lives --------------------------------------------------------------------------------------------------------------


def test_numbered_commands_of_an_earlier_life_have_no_effect() -> None:
    bench = Bench(running=False)
    bench.configure(life=2)
    assert bench.hear(NODES, seq=1, life=1) == []
    accepted = NodeResponse(accepted=[AcceptedNode(node_id="n1")], cause=1)
    assert bench.hear(NODES, seq=1, life=2) == [news(accepted, 1, 1, life=2)]


def test_acknowledgements_of_an_earlier_life_do_not_count() -> None:
    bench = Bench(running=False)
    bench.configure(life=2)
    bench.hear(NODES, seq=1, life=2)
    bench.hear(Ack(), ack=9, life=1)
    assert len(bench.hear(Repeat(), life=2)) == 2
    bench.hear(Ack(), ack=1, life=2)
    assert len(bench.hear(Repeat(), life=2)) == 1


# Questions ----------------------------------------------------------------------------------------------------------


def test_a_question_is_answered_under_its_reference() -> None:
    bench = Bench()
    bench.furnish()
    asked = {"rm": "", "session": "", "ref": "webservice 7"}
    [answer] = bench.hear(Query(what="nodes", name="default"), **asked)
    assert (answer.to, answer.header) == (
        BROKER, header("Answer", partition=PARTITION, epoch=EPOCH, **asked),
    )  # fmt: skip
    [document] = said([answer])
    assert isinstance(document, Answer)
    assert document.status == 200
    assert [node["nodeID"] for node in json.loads(document.body)] == ["n1"]


def test_an_empty_worker_says_that_it_is_starting() -> None:
    assert said(Bench(running=False).hear(Query(what="nodes"))) == [
        Answer(status=503, body=b"the partition is starting")
    ]


def test_an_unknown_question_is_answered_too() -> None:
    assert said(Bench().hear(Query(what="weather"))) == [Answer(status=400, body=b"unknown question 'weather'")]


def test_an_rm_that_only_talks_and_never_acknowledges_is_refused_until_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rm_channel, "BACKLOG_MAX_MESSAGES", 5)
    bench = Bench()
    for _ in range(5):
        assert bench.tell(NODES)[0].header.seq
    reason = "5 messages wait to be acknowledged: acknowledge them before you send more"
    refusal = Refused(code="window", reason=reason, seq=6)
    assert bench.hear(APP, seq=6) == [news(refusal, 0, 5)]
    assert bench.hear(APP, seq=6, ack=1)[0].header.ack == 6


def test_new_objects_are_collected_after_some_work_although_old_ones_are_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    collections: list[int] = []
    monkeypatch.setattr(worker_module.gc_tuning, "collect_new", lambda: collections.append(bench.seq))
    monkeypatch.setattr(worker_module, "COLLECT_AFTER", 100)
    bench = Bench()
    bench.furnish()
    bench.tell(ask(*(f"k{number}" for number in range(49))))
    bench.schedule()
    found = len(collections)
    for number in range(50):
        bench.tell(ask(f"more-{number}"))
        bench.schedule()
    assert found <= 1
    assert 1 <= len(collections) - found <= 2
