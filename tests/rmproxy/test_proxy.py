import pytest
from msgspec.structs import replace

from tests.machines import PARTITION, RM, SESSION, arrives, header, sent
from yunishard.common.messages.kinds import Header
from yunishard.common.messages.rm_messages import (
    Ack,
    Allocation,
    AllocationRelease,
    AllocationReleasesRequest,
    AllocationRequest,
    AllocationResponse,
    ApplicationRequest,
    NodeInfo,
    NodeRequest,
    NodeResponse,
    PartitionRestarted,
    PredicatesAnswered,
    PredicatesArgs,
    PredicatesAsked,
    Received,
    Refused,
    Registered,
    RegisterResourceManager,
    RejectedAllocation,
    ReleasesIgnored,
    RemoveApplicationRequest,
    Resume,
    StateDumpAnswered,
    StateDumpAsked,
)
from yunishard.common.messages.session import WINDOW_BYTES, WINDOW_MESSAGES
from yunishard.common.messages.wire import MALFORMED, NEVER, Incoming, Outgoing, decode_body, encode_body
from yunishard.rmproxy.proxy import BROKER, Proxy, make_ref

PEER = "native:0001"
OTHER = "native:0002"
GPU = "rm-1_gpu"
REQUEST = RegisterResourceManager(rm_id=RM)
ASK = AllocationRequest(allocations=[Allocation(allocation_key="k", application_id="a")])


def called(proxy: Proxy, peer: str = PEER, *, session: str = SESSION, ref: str = "mine", rm: str = RM) -> Outgoing:
    """An RM registers; what goes to the broker."""
    [call] = proxy.handle(arrives(peer, REQUEST, ref=ref, session=session, rm=rm), 0)
    return call


def answered(proxy: Proxy, call: Outgoing, *partitions: str) -> list[Outgoing]:
    """The broker says yes."""
    answer = Registered(partitions=list(partitions or (PARTITION, GPU)))
    to = {"rm": call.header.rm, "session": call.header.session, "ref": call.header.ref}
    return proxy.handle(arrives(BROKER, answer, **to), 0)


def told(*partitions: str) -> Registered:
    """What the RM hears then: with what the proxy asks of it."""
    return Registered(partitions=list(partitions), window_messages=WINDOW_MESSAGES, window_bytes=WINDOW_BYTES)


def passed(update: AllocationRequest, partition: str = PARTITION) -> Outgoing:
    """An update without a number on its way to its partition, which gives the mark back."""
    ref = make_ref(header("AllocationRequest"), len(encode_body(update)))
    return sent(BROKER, update, partition=partition, ref=ref)


def seated(proxy: Proxy, peer: str = PEER, *, session: str = SESSION, rm: str = RM) -> list[Outgoing]:
    return answered(proxy, called(proxy, peer, session=session, rm=rm))


def open_proxy() -> Proxy:
    proxy = Proxy()
    seated(proxy)
    return proxy


def one_refusal(sends: list[Outgoing], to: str = PEER) -> Refused:
    [one] = sends
    assert one.to == to
    assert one.header.kind == "Refused"
    return decode_body(Refused, one.body)


def asks(*partitions: str) -> AllocationRequest:
    return AllocationRequest(allocations=[Allocation(allocation_key=f"k-{p}", partition_name=p) for p in partitions])


# Registration -------------------------------------------------------------------------------------------------------


def test_a_registration_goes_to_the_broker_with_its_body_unopened() -> None:
    proxy = Proxy()
    call = Incoming(PEER, header("RegisterResourceManager", ref="mine"), b"not opened here")
    [passed] = proxy.handle(call, 0)
    assert (passed.to, passed.body) == (BROKER, b"not opened here")
    assert passed.header.ref
    assert passed.header == header("RegisterResourceManager", ref=passed.header.ref)


def test_the_answer_finds_back_and_carries_the_reference_of_the_caller() -> None:
    proxy = Proxy()
    assert answered(proxy, called(proxy), PARTITION) == [sent(PEER, told(PARTITION), ref="mine")]


def test_a_refusal_finds_back_and_the_rm_stays_a_stranger() -> None:
    proxy = Proxy()
    call = called(proxy)
    refusal = Refused(code="registration", reason="no")
    assert proxy.handle(arrives(BROKER, refusal, ref=call.header.ref), 0) == [sent(PEER, refusal, ref="mine")]
    assert one_refusal(proxy.handle(arrives(PEER, ASK), 0)).code == "unknown-session"


def test_answers_find_their_callers_in_any_order() -> None:
    proxy = Proxy()
    first, second = called(proxy, PEER, rm="a"), called(proxy, OTHER, rm="b")
    assert [one.to for one in answered(proxy, second)] == [OTHER]
    assert [one.to for one in answered(proxy, first)] == [PEER]


@pytest.mark.parametrize("ref", ["", "a b", "native:0002 mine", "broker x", "1", "2", "r" * 4000])
def test_whatever_reference_a_caller_chooses_its_answer_comes_back_to_it_alone(ref: str) -> None:
    proxy = Proxy()
    seated(proxy, OTHER, session="another", rm="rm-2")
    call = called(proxy, PEER, ref=ref)
    assert len(call.header.ref) < 100
    assert answered(proxy, call, PARTITION) == [sent(PEER, told(PARTITION), ref=ref)]


def test_the_answer_to_an_rm_whose_name_has_a_space_comes_back() -> None:
    proxy = Proxy()
    call = called(proxy, "grpc:a b", rm="a b")
    refusal = Refused(code="registration", reason="no")
    [back] = proxy.handle(arrives(BROKER, refusal, rm="a b", ref=call.header.ref), 0)
    assert back == sent("grpc:a b", refusal, rm="a b", ref="mine")


def test_a_call_never_outgrows_the_limit_of_a_header() -> None:
    proxy = Proxy()
    long = header("RegisterResourceManager", rm="r" * 1300, session="s" * 1300, ref="f" * 1300)
    assert one_refusal(proxy.handle(Incoming(PEER, long, b""), 0)).code == "malformed"


def test_a_second_session_takes_the_place_of_the_first_which_is_told_once() -> None:
    proxy = open_proxy()
    call = called(proxy, OTHER, session="session-2")
    superseded = Refused(code="superseded", reason="RM 'rm-1' registered again elsewhere")
    assert proxy.handle(arrives(BROKER, superseded), 0) == [sent(PEER, superseded)]
    assert [one.to for one in answered(proxy, call)] == [OTHER]
    assert one_refusal(proxy.handle(arrives(PEER, ASK), 0)).code == "unknown-session"
    assert proxy.handle(arrives(OTHER, ASK, session="session-2", partition=PARTITION), 0)


def test_a_first_session_that_the_broker_did_not_know_is_told_by_the_proxy() -> None:
    proxy = open_proxy()
    superseded = Refused(code="superseded", reason="RM 'rm-1' registered again")
    assert seated(proxy, OTHER, session="session-2")[1:] == [sent(PEER, superseded)]


def test_a_resumption_moves_the_session_to_its_new_connection() -> None:
    proxy = open_proxy()
    [call] = proxy.handle(arrives(OTHER, Resume(received={PARTITION: 3}), ref="again"), 0)
    assert (call.to, call.header.kind) == (BROKER, "Resume")
    answered(proxy, call)
    assert one_refusal(proxy.handle(arrives(PEER, ASK), 0)).code == "unknown-session"
    news = AllocationResponse(new=[Allocation(allocation_key="k")])
    assert proxy.handle(arrives(BROKER, news, partition=PARTITION, seq=4), 0) == [
        sent(OTHER, news, partition=PARTITION, seq=4)
    ]


# Updates ------------------------------------------------------------------------------------------------------------


def test_an_update_that_names_its_partition_passes_unopened_with_its_numbers() -> None:
    proxy = open_proxy()
    numbers = {"seq": 7, "ack": 3}
    update = Incoming(PEER, header("AllocationRequest", partition=PARTITION, **numbers), b"not opened here")
    assert proxy.handle(update, 0) == [
        Outgoing(BROKER, header("AllocationRequest", partition=PARTITION, **numbers), b"not opened here")
    ]


@pytest.mark.parametrize("name", ["gpu", "[rm-1]gpu", "rm-1_gpu"])
def test_any_spelling_of_a_partition_is_normalised(name: str) -> None:
    assert open_proxy().handle(arrives(PEER, ASK, partition=name, seq=1), 0) == [
        sent(BROKER, ASK, partition=GPU, seq=1)
    ]


def test_an_rm_cannot_speak_under_a_lease_or_with_a_reference() -> None:
    said = arrives(PEER, ASK, partition=PARTITION, seq=1, epoch=9, ref="native:0002 x")
    assert open_proxy().handle(said, 0) == [sent(BROKER, ASK, partition=PARTITION, seq=1)]


def test_an_update_of_several_partitions_is_split() -> None:
    assert open_proxy().handle(arrives(PEER, asks("gpu", "", "gpu")), 0) == [
        passed(asks("gpu", "gpu"), GPU),
        passed(asks("")),
    ]


def test_parts_of_a_split_update_for_unknown_partitions_are_refused_and_the_others_pass() -> None:
    first, refused = open_proxy().handle(arrives(PEER, asks("gpu", "zzz")), 0)
    assert first == passed(asks("gpu"), GPU)
    assert refused.to == PEER
    assert decode_body(AllocationResponse, refused.body).rejected_allocations[0].reason == (
        "Failed to find partition rm-1_zzz, for application  and allocation k-zzz"
    )


@pytest.mark.parametrize("name", ["zzz", "rm-2_default", "[rm-2]default", "rm-1_zzz"])
def test_a_partition_of_nobody_or_of_another_rm_is_unknown(name: str) -> None:
    proxy = open_proxy()
    seated(proxy, OTHER, session="another", rm="rm-2")
    [answer] = proxy.handle(arrives(PEER, ASK, partition=name, seq=4), 0)
    full = name if name.startswith("rm-1_") else f"rm-1_{name}"
    reason = f"Failed to find partition {full}, for application a and allocation k"
    rejected = [RejectedAllocation(allocation_key="k", application_id="a", reason=reason)]
    assert answer == sent(PEER, AllocationResponse(rejected_allocations=rejected), partition=name, ack=4)


def test_what_a_partition_would_ignore_is_acknowledged_for_an_unknown_one() -> None:
    update = ApplicationRequest(remove=[RemoveApplicationRequest(application_id="a")])
    assert open_proxy().handle(arrives(PEER, update, partition="rm-1_zzz", seq=4), 0) == [
        sent(PEER, Received(), partition="rm-1_zzz", ack=4)
    ]


@pytest.mark.parametrize("seq", [0, 4])
def test_releases_for_an_unknown_partition_are_reported_and_acknowledged(seq: int) -> None:
    one = AllocationRelease(application_id="a", allocation_key="k")
    update = AllocationRequest(releases=AllocationReleasesRequest(allocations_to_release=[one]))
    ignored = [replace(one, message="partition rm-1_zzz does not exist")]
    assert open_proxy().handle(arrives(PEER, update, partition="rm-1_zzz", seq=seq), 0) == [
        sent(PEER, ReleasesIgnored(ignored=ignored), partition="rm-1_zzz"),
        sent(PEER, Received(), partition="rm-1_zzz", ack=seq),
    ]


@pytest.mark.parametrize("partition", [PARTITION, "rm-1_gone"])
def test_an_acknowledgement_passes_once_for_what_came_by(partition: str) -> None:
    proxy = open_proxy()
    ack = arrives(PEER, Ack(), partition=partition, ack=4)
    assert proxy.handle(ack, 0) == [], "nobody said anything"
    proxy.handle(arrives(BROKER, NodeResponse(), partition=partition, seq=4), 0)
    assert proxy.handle(ack, 0) == [sent(BROKER, Ack(), partition=partition, ack=4)]
    assert proxy.handle(ack, 0) == []
    assert proxy.handle(arrives(PEER, Ack(), partition=partition, ack=5), 0) == []


# Refused ------------------------------------------------------------------------------------------------------------


def test_an_unregistered_rm_is_refused_with_the_reference_text() -> None:
    for kind in ("NodeRequest", "ApplicationRequest", "AllocationRequest"):
        [answer] = Proxy().handle(Incoming(PEER, header(kind, rm="x", seq=5, ref="r"), b"\x80"), 0)
        refusal = Refused(code="unknown-session", reason=f'received {kind}, but RmID="x" not registered', seq=5)
        assert answer == sent(PEER, refusal, rm="x", ref="r")


def test_only_the_peer_and_the_session_that_registered_may_speak() -> None:
    proxy = open_proxy()
    assert one_refusal(proxy.handle(arrives(OTHER, ASK), 0), OTHER).code == "unknown-session"
    assert one_refusal(proxy.handle(arrives(PEER, ASK, session="another"), 0)).code == "unknown-session"
    assert one_refusal(proxy.handle(arrives(PEER, ASK, rm="rm-2"), 0)).code == "unknown-session"


def test_what_cannot_be_read_is_refused_with_its_reason() -> None:
    proxy = open_proxy()
    malformed = Incoming(PEER, Header(kind=MALFORMED), b"header: Expected `array`")
    expected = Outgoing(
        PEER, Header(kind="Refused"), encode_body(Refused(code="malformed", reason="header: Expected `array`"))
    )
    assert proxy.handle(malformed, 0) == [expected]
    assert proxy.handle(arrives(PEER, ASK, partition=PARTITION), 0)


@pytest.mark.parametrize(
    "kind",
    ["", "Nonsense", "Hello", "News", "Command", "PrepareConfig", "ConfigVote", "WorkersWanted", "Query", "Answer",
     "Registered", "Refused", "AllocationResponse", "PartitionRestarted", "Received", "ListPartitions", "Repeat"],
)  # fmt: skip
def test_what_an_rm_does_not_say_goes_no_further(kind: str) -> None:
    [answer] = open_proxy().handle(Incoming(PEER, header(kind, partition=PARTITION, seq=2), b"\x80"), 0)
    refusal = Refused(code="unknown-kind", reason=f"an RM does not send {kind!r}", seq=2)
    assert answer == sent(PEER, refusal)


def test_numbers_and_acknowledgements_need_a_partition() -> None:
    proxy = open_proxy()
    assert one_refusal(proxy.handle(arrives(PEER, ASK, seq=1), 0)).code == "no-partition"
    assert one_refusal(proxy.handle(arrives(PEER, Ack(), ack=1), 0)).code == "no-partition"


def test_a_malformed_update_that_has_to_be_opened_is_refused_with_its_place() -> None:
    proxy = open_proxy()
    for partition in ("", "rm-1_zzz"):
        update = Incoming(PEER, header("NodeRequest", partition=partition), b"\x81\xa5nodes\x05")
        reason = "NodeRequest: Expected `array`, got `int` - at `$.nodes`"
        assert one_refusal(proxy.handle(update, 0)) == Refused(code="malformed", reason=reason)


def test_a_malformed_update_for_an_unknown_partition_counts_as_received_as_it_would_for_a_known_one() -> None:
    update = Incoming(PEER, header("NodeRequest", partition="rm-1_zzz", seq=4), b"\x81\xa5nodes\x05")
    refused, received = open_proxy().handle(update, 0)
    assert (refused.header.kind, decode_body(Refused, refused.body).seq) == ("Refused", 4)
    assert received == sent(PEER, Received(), partition="rm-1_zzz", ack=4)


# From the core ------------------------------------------------------------------------------------------------------


def test_news_go_to_the_peer_that_speaks_for_the_rm() -> None:
    proxy = open_proxy()
    for news in (NodeResponse(), PartitionRestarted(), Received(), Refused(code="gap", reason="", seq=4)):
        numbers = {"partition": PARTITION, "seq": 4, "ack": 2, "life": 1}
        assert proxy.handle(arrives(BROKER, news, **numbers), 0) == [sent(PEER, news, **numbers)]


def test_news_for_an_earlier_session_or_a_stranger_are_dropped() -> None:
    proxy = open_proxy()
    assert proxy.handle(arrives(BROKER, NodeResponse(), session="earlier", seq=1), 0) == []
    assert proxy.handle(arrives(BROKER, NodeResponse(), rm="rm-2", seq=1), 0) == []


@pytest.mark.parametrize("ref", ["x y", "native:0002 mine", "native:zz y", "header of 5000 bytes, at most 4096", "1"])
def test_a_refusal_with_a_reference_that_is_no_calls_reaches_nobody_else(ref: str) -> None:
    proxy = open_proxy()
    refusal = Refused(code="malformed", reason="", seq=4)
    assert {one.to for one in proxy.handle(arrives(BROKER, refusal, partition=PARTITION, ref=ref), 0)} == {PEER}
    assert proxy.handle(arrives(BROKER, refusal, rm="", session="", ref=ref), 0) == []


def test_an_answer_counts_once() -> None:
    proxy = Proxy()
    call = called(proxy)
    answered(proxy, call)
    assert answered(proxy, call) == []


def test_the_proxy_waits_for_nothing_but_messages() -> None:
    proxy = Proxy()
    assert proxy.deadline == NEVER
    assert proxy.tick(0) == []


def test_updates_of_nodes_go_by_their_attribute() -> None:
    nodes = [NodeInfo(node_id="n1", action=1), NodeInfo(node_id="n2", attributes={"si/node-partition": "gpu"})]
    assert [one.header.partition for one in open_proxy().handle(arrives(PEER, NodeRequest(nodes=nodes)), 0)] == [
        PARTITION,
        GPU,
    ]


def test_a_question_about_predicates_reaches_the_rm_and_its_answer_the_core() -> None:
    proxy = open_proxy()
    asked = PredicatesAsked(
        question=3, deadline_milli_seconds=200, asked=[PredicatesArgs(allocation_key="k", node_id="n1")]
    )
    assert proxy.handle(arrives(BROKER, asked, partition=PARTITION), 0) == [sent(PEER, asked, partition=PARTITION)]
    answer = PredicatesAnswered(question=3)
    assert proxy.handle(arrives(PEER, answer, partition=PARTITION), 0) == [sent(BROKER, answer, partition=PARTITION)]
    assert proxy.handle(arrives(PEER, answer, partition=PARTITION), 0) == [], "it was asked once"


def test_a_question_for_the_rms_own_state_reaches_it_and_its_answer_the_core() -> None:
    proxy = open_proxy()
    asked = StateDumpAsked(question=3, deadline_milli_seconds=2000)
    assert proxy.handle(arrives(BROKER, asked, partition=PARTITION), 0) == [sent(PEER, asked, partition=PARTITION)]
    answer = StateDumpAnswered(question=3, text="{}")
    assert proxy.handle(arrives(PEER, answer, partition=PARTITION), 0) == [sent(BROKER, answer, partition=PARTITION)]
    assert proxy.handle(arrives(PEER, answer, partition=PARTITION), 0) == [], "it was asked once"


def test_an_answer_about_predicates_needs_a_session_and_a_partition() -> None:
    proxy = open_proxy()
    answer = PredicatesAnswered(question=3)
    stranger = one_refusal(proxy.handle(arrives(OTHER, answer, partition=PARTITION), 0), OTHER)
    assert stranger.code == "unknown-session"
    assert one_refusal(proxy.handle(arrives(PEER, answer), 0)).code == "no-partition"
