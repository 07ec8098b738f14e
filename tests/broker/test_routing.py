"""Routing and registration; sessions that come again are in `test_rm_sessions.py`."""

import pytest

from tests.analyses import answer_text
from tests.broker.bench import GPU, KEEPER, PROXY, BrokerBench, is_prepare, joined, registered, wanted
from tests.machines import ONE_QUEUE, PARTITION, RM, SESSION, config_of, header, said, sent, two_partitions
from yunishard.broker.config_rollout import ROLLOUT_MAX_S
from yunishard.broker.config_validation import READERS
from yunishard.common.messages.control_messages import (
    AbortConfig,
    CommitConfig,
    Hello,
    ManagerAway,
    PartitionRemoved,
    PrepareConfig,
    Repeat,
    Repeated,
    SessionMoved,
    WorkersWanted,
)
from yunishard.common.messages.kinds import Header, Message
from yunishard.common.messages.query_messages import (
    Actor,
    Answer,
    ConfigRefusals,
    KillApplication,
    ListPartitions,
    ManagerEntry,
    MoveApplication,
    PartitionEntry,
    PartitionList,
    ProcessHealth,
    Query,
    Schedule,
)
from yunishard.common.messages.rm_messages import (
    Ack,
    NodeRequest,
    NodeResponse,
    PartitionRestarted,
    Refused,
    Registered,
    Resume,
)
from yunishard.common.messages.wire import NEVER, Incoming, Outgoing, decode_body, encode_body
from yunishard.common.names import FILE, RECORD

WEB = "webservice"
NONE = {"rm": "", "session": ""}


def refused(reason: str, code: str = "registration", **fields: str | int) -> Outgoing:
    return sent(PROXY, Refused(code=code, reason=reason), **{"ref": "call", **fields})


# Registration -------------------------------------------------------------------------------------------------------


def test_a_registration_wants_a_worker_asks_it_and_commits_what_it_voted_for() -> None:
    bench = BrokerBench()
    wanted = WorkersWanted(partitions=[PARTITION])
    assert bench.call() == [sent(KEEPER, wanted, **NONE)]
    asked = sent(PARTITION, PrepareConfig(rollout=1, config=config_of()), partition=PARTITION)
    assert bench.hello(PARTITION) == [asked]
    assert bench.vote(asked) == [
        sent(PARTITION, CommitConfig(rollout=1), partition=PARTITION),
        sent(PROXY, joined([PARTITION]), ref="call"),
    ]
    assert bench.broker.deadline == NEVER


def test_an_rm_without_a_configuration_gets_that_of_the_core() -> None:
    bench = BrokerBench(default_config=two_partitions())
    bench.call("")
    assert list(bench.broker.registry.slots) == [PARTITION, GPU]
    bench = BrokerBench()
    bench.call("")
    assert list(bench.broker.registry.slots) == [PARTITION]


def test_a_registration_waits_for_the_analysis_of_its_text_by_a_child_process() -> None:
    bench = BrokerBench()
    bench.analyses = False
    [request] = bench.call()
    assert (request.to, request.header.kind, request.body) == (READERS[0], "ReadText", ONE_QUEUE.encode())
    [leases] = bench.broker.handle(answer_text(request), bench.now)
    assert leases.header.kind == "WorkersWanted"


def test_all_workers_must_vote_before_any_commits() -> None:
    bench = BrokerBench()
    bench.call(two_partitions())
    [first], [second] = bench.hello(PARTITION), bench.hello(GPU)
    assert bench.vote(second) == []
    assert [one.header.kind for one in bench.vote(first)] == ["CommitConfig", "CommitConfig", "Registered"]


def test_a_configuration_without_partitions_needs_nobody() -> None:
    nothing = "partitions: []"
    assert BrokerBench().call(nothing) == [sent(PROXY, joined([], nothing), ref="call")]


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("partitions: [{name: default}]", "queue config is not set"),
        ("]", "this is not YAML"),
        ("[" * 10_000, "nested more than"),
        ("a: &a [*a]", "contains itself"),
        ("parts: []", "unknown key 'parts'"),
        (two_partitions("default", "DEFAULT"), "default"),
        ("partitions: [{name: 'a b', queues: [{name: root, submitacl: '*'}]}]", "partition name 'a b' must be"),
        (two_partitions("rm-1_x", "y"), "must not begin with the RM's own prefix"),
    ],
)
def test_a_configuration_that_cannot_be_is_refused_and_nothing_has_changed(config: str, words: str) -> None:
    bench = BrokerBench()
    [answer] = bench.call(config)
    assert (answer.to, answer.header) == (PROXY, header("Refused", ref="call"))
    [refusal] = said([answer])
    assert isinstance(refusal, Refused)
    assert refusal.code == "registration"
    assert refusal.reason.startswith("registration of RM failed: ")
    assert words in refusal.reason
    assert bench.broker.registry.slots == {}
    assert bench.register()


def test_an_rm_must_have_a_name_and_it_must_be_its_own() -> None:
    unnamed = "registration of RM failed: partition cannot be created without name or RM, one is not set"
    assert BrokerBench().call(rm="") == [refused(unnamed, rm="")]
    bench = BrokerBench()
    other = bench.broker.handle(
        Incoming(PROXY, header("RegisterResourceManager", ref="call"), b"\x81\xa4rmID\xa4rm-2"), 0
    )
    assert other == [refused("registration of RM failed: RM id 'rm-2' in a message of 'rm-1'")]


def test_a_workers_no_refuses_the_whole_and_its_seats_are_given_up() -> None:
    bench = BrokerBench()
    bench.call(two_partitions())
    [first], [second] = bench.hello(PARTITION), bench.hello(GPU)
    bench.vote(first)
    assert bench.vote(second, "no room") == [
        sent(PARTITION, AbortConfig(rollout=1), partition=PARTITION),
        sent(GPU, AbortConfig(rollout=1), partition=GPU),
        refused("registration of RM failed: partition rm-1_gpu: no room"),
        sent(PARTITION, PartitionRemoved(), session="", partition=PARTITION),
        sent(GPU, PartitionRemoved(), session="", partition=GPU),
        sent(KEEPER, WorkersWanted(partitions=[], dismissed={f"{PARTITION}#1": PARTITION, f"{GPU}#2": GPU}), **NONE),
    ]
    assert bench.register()[-1].header.kind == "Registered"


def test_workers_that_do_not_answer_in_time_refuse_it() -> None:
    bench = BrokerBench()
    bench.call(two_partitions())
    bench.vote(*bench.hello(GPU))
    assert bench.broker.deadline == 1.0 + ROLLOUT_MAX_S
    *aborts, answer, removal, supervisor = bench.broker.tick(1.0 + ROLLOUT_MAX_S)
    assert (removal.to, removal.header.kind) == (f"{GPU}#2", "PartitionRemoved")
    assert [one.header.kind for one in aborts] == ["AbortConfig"]
    assert answer == refused("registration of RM failed: no answer from the workers of rm-1_default within 20 s")
    assert wanted([supervisor]) == [[]]
    assert bench.broker.tick(99) == []


def test_a_second_call_while_one_is_under_way_is_told_to_wait() -> None:
    bench = BrokerBench()
    bench.call()
    reason = "a registration of RM 'rm-1' is under way, try again when it is done"
    assert bench.call(session="session-2", ref="other") == [refused(reason, "busy", session="session-2", ref="other")]


@pytest.mark.parametrize("under_way", [False, True])
def test_two_rms_can_have_partitions_of_the_same_usual_name(under_way: bool) -> None:
    bench = BrokerBench()
    bench.call(two_partitions("b_c", "x"), rm="a")
    asked = [*bench.hello("a_b_c"), *bench.hello("a_x")]
    if not under_way:
        for one in asked:
            bench.vote(one)
    assert bench.register(two_partitions("c", "y"), rm="a_b")[-1].header.kind == "Registered"
    assert list(bench.broker.registry.sessions["a_b"].configs) == ["a_b_c~3", "a_b_y"]
    if under_way:
        bench.vote(asked[0])
        assert bench.vote(asked[1])[-1].header.kind == "Registered"


def test_a_name_is_free_again_when_its_registration_was_refused() -> None:
    bench = BrokerBench()
    bench.call(two_partitions("b_c", "x"), rm="a")
    [asked] = bench.hello("a_b_c")
    bench.vote(asked, "no")
    assert bench.register(two_partitions("c", "y"), rm="a_b")[-1].header.kind == "Registered"


# Routing ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["NodeRequest", "ApplicationRequest", "AllocationRequest", "Ack"])
def test_a_command_goes_to_its_partition_unopened(kind: str) -> None:
    whole = header(kind, partition=PARTITION, seq=5, ack=3, life=1)
    assert registered().broker.handle(Incoming(PROXY, whole, b"not opened"), 2) == [
        Outgoing(f"{PARTITION}#1", whole, b"not opened")
    ]


@pytest.mark.parametrize("partition", ["rm-1_zzz", "rm-2_default"])
def test_a_command_for_another_partition_goes_back_to_the_proxy_which_can_refuse_what_it_carries(
    partition: str,
) -> None:
    bench = registered()
    bench.register(rm="rm-2", session="another")
    assert bench.hear(PROXY, NodeRequest(), seq=5, partition=partition) == [
        sent(PROXY, NodeRequest(), seq=5, partition=partition)
    ]
    assert bench.hear(PROXY, Ack(), ack=5, partition=partition) == []


@pytest.mark.parametrize("fields", [{"session": "earlier"}, {"rm": "rm-2"}])
def test_a_command_of_another_session_is_refused(fields: dict[str, str]) -> None:
    bench = registered()
    bench.register(rm="rm-2", session="another")
    addressed = {"partition": PARTITION, **fields}
    reason = f'received NodeRequest, but RmID="{fields.get("rm", RM)}" not registered'
    answer = Refused(code="unknown-session", reason=reason, seq=5)
    to = {name: value for name, value in fields.items() if name != "partition"}
    assert bench.hear(PROXY, NodeRequest(), seq=5, **addressed) == [sent(PROXY, answer, **to)]


def test_news_go_to_the_proxy_of_the_rm_if_the_lease_holds() -> None:
    bench = registered()
    lease = {"partition": PARTITION, "seq": 1, "epoch": bench.epoch(PARTITION)}
    for news in (NodeResponse(), Refused(code="gap", reason="", seq=4)):
        assert bench.hear(PARTITION, news, **lease) == [sent(PROXY, news, **lease)]


@pytest.mark.parametrize("fields", [{"partition": GPU}, {"session": "earlier"}, {"rm": "rm-2"}])
def test_news_under_another_lease_or_for_another_session_are_dropped(fields: dict[str, str | int]) -> None:
    bench = registered()
    lease = {"partition": PARTITION, "seq": 1, "epoch": bench.epoch(PARTITION)}
    assert bench.hear(PARTITION, NodeResponse(), **{**lease, **fields}) == []
    for stranger in ("nobody", f"{PARTITION}#99", f"{PARTITION}#"):
        assert bench.hear(stranger, NodeResponse(), **lease) == []


def test_a_vote_under_an_old_lease_does_not_count() -> None:
    bench = BrokerBench()
    bench.call()
    [asked] = bench.hello(PARTITION)
    for name in (f"{PARTITION}#99", PARTITION):
        vote = Incoming(name, Header(kind="ConfigVote", rm=RM, partition=PARTITION, epoch=1), b"\x81\xa7rollout\x01")
        assert bench.broker.handle(vote, 1) == []
    assert bench.vote(asked)[-1].header.kind == "Registered"


@pytest.mark.parametrize(
    "message",
    [
        KillApplication(application_id="a", actor=Actor(user="op")),
        MoveApplication(application_id="a", queue="root.b", actor=Actor(user="op")),
        Schedule(steps=3),
    ],
)
def test_what_an_administrator_wants_of_a_partition_goes_to_its_worker(message: Message) -> None:
    [wanted] = registered().hear(WEB, message, partition=PARTITION, ref="web 17", **NONE)
    assert (wanted.to, wanted.header.kind, wanted.body) == (PARTITION, type(message).__name__, encode_body(message))


def test_a_question_to_a_worker_that_begins_anew_is_answered_at_once() -> None:
    bench = registered()
    bench.hear(WEB, Query(what="nodes"), partition=PARTITION, ref="web 17", **NONE)
    told = [one for one in bench.returns(PARTITION) if one.header.kind == "Answer"]
    assert [(one.to, one.header.ref, decode_body(Answer, one.body).status) for one in told] == [(WEB, "web 17", 503)]


def test_a_question_goes_to_its_partition_and_the_answer_back_under_the_askers_reference() -> None:
    bench = registered()
    [asked] = bench.hear(WEB, Query(what="nodes"), partition=PARTITION, ref="web 17", **NONE)
    assert (asked.to, asked.header.kind, asked.body) == (PARTITION, "Query", encode_body(Query(what="nodes")))
    answer = Answer(status=200, body=b"[]")
    lease = {"partition": PARTITION, "epoch": bench.epoch(PARTITION), **NONE}
    assert bench.hear(PARTITION, answer, ref=asked.header.ref, **lease) == [
        sent(WEB, answer, partition=PARTITION, ref="web 17", **NONE)
    ]
    assert bench.hear(f"{PARTITION}#99", answer, ref=asked.header.ref, **lease) == []


@pytest.mark.parametrize("asker", [RECORD, FILE])
def test_an_answer_for_somebody_who_never_asks_goes_nowhere(asker: str) -> None:
    bench = registered()
    lease = {"partition": PARTITION, "epoch": bench.epoch(PARTITION), **NONE}
    assert bench.hear(PARTITION, Answer(status=200, body=b""), ref=f"{asker} 1", **lease) == []


def test_a_question_about_nothing_is_answered_at_once() -> None:
    bench = BrokerBench()
    bench.call()
    not_found = sent(WEB, Answer(status=404, body=b"Partition not found"), ref="7", **NONE)
    for partition in (PARTITION, "rm-2_default", ""):
        assert bench.hear(WEB, Query(what="nodes"), partition=partition, ref="7", **NONE) == [not_found]


def test_a_front_end_hears_who_is_registered() -> None:
    bench = registered()
    bench.register(two_partitions("b", "a"), rm="rm-0", session="another")
    entries = [
        ("rm-1_default", "default", RM, 1, SESSION),
        ("rm-0_a", "a", "rm-0", 3, "another"),
        ("rm-0_b", "b", "rm-0", 2, "another"),
    ]
    bench.hear(PROXY, ManagerAway(), rm="rm-0", session="another")
    assert bench.hear(WEB, ListPartitions(), ref="7", **NONE) == [
        sent(
            WEB,
            PartitionList(
                partitions=[
                    PartitionEntry(full_name=full, name=name, rm_id=rm, epoch=epoch, session=session)
                    for full, name, rm, epoch, session in entries
                ],
                build_information={RM: {"v": "1", "rmId": RM}, "rm-0": {"v": "1", "rmId": "rm-0"}},
                started_ns=10**9,
                managers=[
                    ManagerEntry(rm_id=RM),
                    ManagerEntry(rm_id="rm-0", away_since_ns=10**9),
                ],
                process=ProcessHealth(),
                refusals=ConfigRefusals(),
            ),
            ref="7",
            **NONE,
        )
    ]


# What nobody should send --------------------------------------------------------------------------------------------


def test_a_malformed_body_is_refused_with_its_place() -> None:
    for kind in ("RegisterResourceManager", "Resume"):
        [answer] = registered().broker.handle(Incoming(PROXY, header(kind, ref="call"), b"\x90"), 0)
        assert answer == refused(f"{kind}: Expected `object`, got `array`", "malformed")


def test_an_unknown_kind_is_refused() -> None:
    for kind in ("", "Nonsense"):
        [answer] = BrokerBench().broker.handle(Incoming(PROXY, header(kind, ref="call"), b""), 0)
        assert answer == refused(f"unknown message {kind!r}", "unknown-kind")


def test_what_could_not_be_read_is_refused_with_the_reason() -> None:
    reason = "body of 99 bytes, at most 9 are allowed"
    [answer] = BrokerBench().broker.handle(Incoming(PROXY, header("Malformed"), reason.encode()), 0)
    assert answer == refused(reason, "malformed", ref="")


def test_a_session_that_registers_again_goes_on_where_it_was() -> None:
    """Its connection broke before it heard that it was in."""
    one = registered()
    answer, *again = one.call(ONE_QUEUE, ref="second")
    assert (answer.header.kind, answer.header.ref) == ("Registered", "second")
    assert [send.header.kind for send in again] == ["Repeat"]


def test_a_session_registers_only_once() -> None:
    [answer] = registered().call("partitions: []", ref="second")
    assert answer == refused(
        "registration of RM failed: this session has registered, begin a new one", "registration", ref="second"
    )


def test_a_session_that_calls_again_before_it_was_answered_is_answered_on_the_new_call() -> None:
    bench = BrokerBench()
    bench.call(ONE_QUEUE, ref="first")
    assert bench.call(ONE_QUEUE, ref="second") == []
    told = bench.vote(*bench.hello(PARTITION))
    assert [(send.header.kind, send.header.ref) for send in told if send.header.ref] == [("Registered", "second")]


def test_a_supervisor_that_says_hello_hears_which_workers_are_wanted() -> None:
    bench = BrokerBench()
    assert wanted(bench.hear(KEEPER, Hello(role="supervisor"), **NONE)) == [[]]
    bench.call(ONE_QUEUE)
    hello = bench.hear(KEEPER, Hello(role="supervisor"), **NONE)
    assert wanted(hello)[0] == [PARTITION]


def test_front_ends_hear_nothing() -> None:
    bench = registered()
    assert bench.hear("rmproxy-2", Hello(role="rmproxy"), **NONE) == []
    assert bench.hear(WEB, Hello(role="webservice"), **NONE) == []


def test_an_acknowledgement_passes() -> None:
    assert registered().hear(PROXY, Ack(), partition=PARTITION, ack=4) == [
        sent(PARTITION, Ack(), partition=PARTITION, ack=4)
    ]


def test_only_workers_are_asked() -> None:
    assert not any(is_prepare(one) for one in registered().hear(WEB, Hello(role="worker"), epoch=1, **NONE))


NEXT = "session-2"
MEANWHILE = "it restarted meanwhile"


# A new session ------------------------------------------------------------------------------------------------------


def test_a_new_session_takes_the_place_of_the_old_one_which_is_told_at_its_own_proxy() -> None:
    bench = registered()
    assert bench.register(session=NEXT, proxy="rmproxy-2") == [
        sent(PROXY, Refused(code="superseded", reason="RM 'rm-1' registered again elsewhere")),
        sent(PARTITION, CommitConfig(rollout=2), partition=PARTITION, session=NEXT),
        sent("rmproxy-2", joined([PARTITION], number=2), session=NEXT, ref="call"),
    ]
    [refusal] = said(bench.hear(PROXY, NodeRequest(), partition=PARTITION))
    assert isinstance(refusal, Refused)
    assert refusal.code == "unknown-session"
    assert bench.hear("rmproxy-2", NodeRequest(), partition=PARTITION, session=NEXT)[0].to == PARTITION


def test_its_workers_are_asked_at_once_and_the_old_session_goes_on_until_they_have_voted() -> None:
    bench = registered()
    [asked] = bench.call(session=NEXT)
    assert asked == sent(PARTITION, PrepareConfig(rollout=2, config=config_of()), partition=PARTITION, session=NEXT)
    assert bench.hear(PROXY, NodeRequest(), partition=PARTITION)[0].to == PARTITION
    news = bench.hear(PARTITION, NodeResponse(), partition=PARTITION, seq=1, epoch=bench.epoch(PARTITION))
    assert news[0].to == PROXY


def test_a_refused_new_session_leaves_the_old_one_as_it_was() -> None:
    bench = registered()
    asked = [one for one in bench.call(two_partitions(), session=NEXT) if is_prepare(one)]
    sends = bench.vote(asked[0], "no")
    assert [one.header.session for one in sends if one.to == PROXY] == [NEXT]
    assert wanted(sends) == [[PARTITION]]
    assert bench.hear(PROXY, NodeRequest(), partition=PARTITION)[0].to == PARTITION


def test_partitions_that_the_new_session_does_not_have_end_and_their_names_are_free() -> None:
    bench = BrokerBench()
    bench.register(two_partitions())
    sends = bench.register(ONE_QUEUE, session=NEXT)
    assert wanted(sends) == [[PARTITION]]
    assert bench.hear(GPU, NodeResponse(), partition=GPU, seq=1, epoch=2) == []
    later = bench.register(two_partitions(), session="session-3")
    assert later[-1].header.kind == "Registered"
    assert bench.epoch(GPU) not in (1, 2)


def test_another_rm_is_not_touched() -> None:
    bench = registered()
    bench.register(rm="rm-2", session="another")
    sends = bench.register("partitions: []", session=NEXT)
    assert wanted([*sends, *bench.call("partitions: []", session="session-3")]) in ([], [["rm-2_default"]])
    assert bench.hear(PROXY, NodeRequest(), partition="rm-2_default", rm="rm-2", session="another")[0].to == (
        "rm-2_default"
    )


# The same session again ---------------------------------------------------------------------------------------------


def test_a_resumption_is_answered_and_every_worker_sends_again_what_was_not_received() -> None:
    bench = BrokerBench()
    bench.register(two_partitions())
    assert bench.hear("rmproxy-2", Resume(received={PARTITION: 7}), ref="again") == [
        sent("rmproxy-2", joined([PARTITION, GPU], two_partitions()), ref="again"),
        sent(PROXY, SessionMoved()),
        sent(PARTITION, Repeat(), partition=PARTITION, ack=7, ref="1"),
        sent(GPU, Repeat(), partition=GPU, ack=0, ref="2"),
    ]
    bench.hear(GPU, Repeated(), partition=GPU, ref="2")
    news = bench.hear(GPU, NodeResponse(), partition=GPU, seq=1, epoch=bench.epoch(GPU))
    assert news[0].to == "rmproxy-2"
    assert [one.header.kind for one in bench.hear(PROXY, NodeRequest(), partition=GPU, seq=1)] == ["Refused"]
    assert bench.hear("rmproxy-2", NodeRequest(), partition=GPU, seq=1)[0].to == GPU


def test_what_a_worker_has_sent_before_it_retransmits_is_not_forwarded() -> None:
    bench = registered()

    def forwarded(seq: int) -> bool:
        return bool(bench.hear(PARTITION, NodeResponse(), partition=PARTITION, seq=seq, epoch=bench.epoch(PARTITION)))

    assert forwarded(1)
    for again in ("again", "and again"):
        bench.hear(PROXY, Resume(received={PARTITION: 1}), ref=again)
    assert not forwarded(3), "2 may be lost"
    assert forwarded(0), "without a number, nothing is missing before it"
    bench.hear(PARTITION, Repeated(), partition=PARTITION, ref="1")
    assert not forwarded(3), "the RM has resumed again since"
    bench.hear(PARTITION, Repeated(), partition=PARTITION, ref="2")
    assert forwarded(2)


def test_an_unknown_session_cannot_be_resumed() -> None:
    bench = registered()
    for rm, session in ((RM, "earlier"), ("rm-2", SESSION)):
        answer = Refused(code="unknown-session", reason=f"RM {rm!r} has no such session, register again")
        assert bench.hear("rmproxy-2", Resume(), rm=rm, session=session, ref="again") == [
            sent("rmproxy-2", answer, rm=rm, session=session, ref="again")
        ]
    news = bench.hear(PARTITION, NodeResponse(), partition=PARTITION, seq=1, epoch=bench.epoch(PARTITION))
    assert news[0].to == PROXY


def test_a_resumption_hears_of_a_restart_that_happened_meanwhile() -> None:
    bench = registered()
    bench.lost(PARTITION)
    told, restarted, repeat = bench.hear(PROXY, Resume(received={PARTITION: 7}), ref="again")
    assert told == sent(PROXY, joined([PARTITION], **{PARTITION: 1}), ref="again")
    assert restarted == sent(PROXY, PartitionRestarted(reason=MEANWHILE), partition=PARTITION, life=1)
    assert repeat == sent(PARTITION, Repeat(), partition=PARTITION, ack=0, life=1, ref="1")
    _, repeat = bench.hear(PROXY, Resume(received={PARTITION: 2}, lives={PARTITION: 1}), ref="again")
    assert repeat == sent(PARTITION, Repeat(), partition=PARTITION, ack=2, life=1, ref="2")


# A worker again -----------------------------------------------------------------------------------------------------


def test_a_worker_that_lost_its_journal_runs_its_configuration_from_empty_and_its_rm_is_told() -> None:
    bench = registered()
    for life in (1, 2):
        assert bench.lost(PARTITION) == [
            sent(PARTITION, PrepareConfig(rollout=1, config=config_of()), partition=PARTITION, life=life),
            sent(PARTITION, CommitConfig(rollout=1), partition=PARTITION, life=life),
            sent(PROXY, PartitionRestarted(reason="damaged"), partition=PARTITION, life=life),
        ]
    assert bench.broker.deadline == NEVER


def test_its_vote_on_what_was_decided_long_ago_changes_nothing() -> None:
    bench = registered()
    asked, _, _ = bench.lost(PARTITION)
    assert bench.vote(asked) == []
    assert bench.vote(asked, "no") == []


def test_a_worker_that_restarts_while_it_votes_is_asked_again() -> None:
    bench = BrokerBench()
    bench.call(two_partitions())
    [first], [second] = bench.hello(PARTITION), bench.hello(GPU)
    bench.vote(first)
    assert bench.hello(PARTITION) == [first]
    assert bench.vote(second) == []
    assert bench.vote(first)[-1].header.kind == "Registered"


def test_a_worker_that_restarts_while_a_new_session_comes_goes_on_with_the_old_one_until_then() -> None:
    bench = registered()
    bench.call(two_partitions(), session=NEXT)
    sends = [(one.header.kind, one.header.session) for one in bench.lost(PARTITION)]
    assert sends == [
        ("PrepareConfig", SESSION),
        ("CommitConfig", SESSION),
        ("PartitionRestarted", SESSION),
        ("PrepareConfig", NEXT),
    ]


def test_a_new_session_begins_in_the_first_life() -> None:
    bench = registered()
    bench.lost(PARTITION)
    sends = bench.register(session=NEXT)
    [commit] = [one for one in sends if one.header.kind == "CommitConfig"]
    assert commit.header.life == 0


def test_the_supervisor_is_told_only_of_changes() -> None:
    bench = registered()
    assert wanted(bench.hello(PARTITION)) == []
    assert wanted(bench.call(session=NEXT)) == []
    expected = WorkersWanted(partitions=[PARTITION, "rm-2_default"])
    assert bench.call(rm="rm-2", session="another")[-1] == sent(KEEPER, expected, **NONE)


# One partition ------------------------------------------------------------------------------------------------------


def resume_one(
    bench: BrokerBench, partition: str = PARTITION, proxy: str = PROXY, **received: dict[str, int]
) -> list[Outgoing]:
    return bench.hear(proxy, Resume(**received), partition=partition, ref="one")


def test_a_request_that_names_a_partition_resumes_only_that_one() -> None:
    bench = BrokerBench()
    bench.register(two_partitions())
    assert resume_one(bench, received={PARTITION: 7}) == [
        sent(PROXY, Registered(partitions=[PARTITION]), partition=PARTITION, ref="one"),
        sent(PARTITION, Repeat(), partition=PARTITION, ack=7, ref="1"),
    ]


def test_a_partition_that_resumes_in_an_earlier_generation_is_reported_as_restarted() -> None:
    bench = registered()
    bench.lost(PARTITION)
    told, restarted, repeat = resume_one(bench, received={PARTITION: 7})
    assert said([told]) == [Registered(partitions=[PARTITION], lives={PARTITION: 1})]
    assert restarted == sent(PROXY, PartitionRestarted(reason="it restarted meanwhile"), partition=PARTITION, life=1)
    assert repeat == sent(PARTITION, Repeat(), partition=PARTITION, life=1, ref="1")


@pytest.mark.parametrize("case", ["away", "another proxy", "unknown partition"])
def test_otherwise_all_partitions_have_to_resume(case: str) -> None:
    bench = registered()
    if case == "away":
        bench.away()
    proxy = "rmproxy-2" if case == "another proxy" else PROXY
    partition = "rm-1_other" if case == "unknown partition" else PARTITION
    refused = Refused(code="busy", reason="resume all partitions")
    assert resume_one(bench, partition, proxy) == [sent(proxy, refused, ref="one")]
    assert (RM in bench.broker.registry.away) == (case == "away")


def test_an_rm_that_is_away_has_to_resume_all_when_a_worker_restarts() -> None:
    bench = registered()
    bench.away()
    wanted = [one for one in bench.returns(PARTITION) if one.header.kind == "ResumeWanted"]
    assert [one.header.partition for one in wanted] == [""]
