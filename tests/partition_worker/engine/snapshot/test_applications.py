import math

import pytest

from partition_worker.engine.allocation import Allocation, Constraint, from_message
from partition_worker.engine.application import AppState
from partition_worker.engine.predicates.evaluation import Predicates
from partition_worker.engine.snapshot import codec
from partition_worker.engine.snapshot.applications import AllocationDecoder, encode_allocation
from partition_worker.engine.snapshot.schema import ReferenceDecoder, ReferenceEncoder
from partition_worker.engine.state import DEFAULT, LogLine
from tests.builders import PARTITION, PROVIDED_CREATE, apps, ask, asks, foreign, gone, nodes, released
from tests.trial import Trial
from tests.twins import Twins, remember, twin


def gang(style: str = "Soft") -> Trial:
    """A gang that has two of its three placeholders, and two real asks for their places."""
    one = Trial(made=Twins).does(
        nodes("n1 memory=10", "n2 memory=10"),
        apps(f"app-1 root.a gang=memory:30 style={style} timeout=60000"),
        asks(*(f"app-1 p{number} memory=10 placeholder group=g" for number in range(3))),
    )
    one.told()
    return one


def test_an_application_goes_on_to_complete() -> None:
    one = Trial(made=Twins).does(nodes("n1 memory=10"), apps("app-1 root.a"), asks("app-1 a1 memory=4"))
    one.does(released("app-1 a1"))
    remember(one).waits(31)
    assert one.partition.applications == {}
    assert [ended.state for ended in one.partition.ended.values()] == [AppState.COMPLETED]


def test_what_has_ended_is_remembered_and_forgotten_in_time() -> None:
    one = Trial("root.a", made=Twins).does(nodes("n1 memory=10"), apps("app-1 root.a", "app-2 root.a", "app-3 root.x"))
    one.does(asks("app-1 a1 memory=4"), released("app-1 a1")).waits(40)
    other = twin(remember(one))
    (ended,) = other.ended.values()
    assert [state for _, state in ended.state_log] == ["Accepted", "Running", "Completing", "Completed"]
    assert list(other.rejections) == ["app-3"]
    one.waits(3 * 24 * 3600)
    assert not other.ended
    assert not other.rejections


def test_an_ended_application_knows_its_queue_although_that_is_gone() -> None:
    one = Trial("root.a; root.p parent", rules=(PROVIDED_CREATE,), made=Twins)
    one.does(nodes("n1 memory=10"), apps("app-1 root.p.x.y"), asks("app-1 a1 memory=4"), released("app-1 a1")).waits(60)
    assert one.partition.tree.find("root.p.x.y") is None
    (ended,) = twin(remember(one)).ended.values()
    assert [level.path for level in ended.queue.ancestry()] == ["root.p.x.y", "root.p.x", "root.p", "root"]
    one.does(apps("app-2 root.p.x.y"), gone("app-2")).waits(60)
    assert remember(one).waits(3 * 24 * 3600).partition.ended == {}


def test_placeholders_are_replaced_afterwards() -> None:
    one = gang()
    remember(one).does(asks("app-1 r1 memory=10 group=g", "app-1 r2 memory=10 group=g"))
    remember(one).does(released("app-1 p0 type=PLACEHOLDER_REPLACED"))
    assert "r1 on n1" in one.running


def test_a_gang_times_out_when_it_would_have() -> None:
    one = gang("Hard").waits(30)
    remember(one).waits(29)
    assert one.app("app-1").state is AppState.ACCEPTED
    one.waits(1)
    assert one.app("app-1").state is AppState.FAILING


def test_a_swap_to_another_node_comes_to_its_end() -> None:
    one = Trial(made=Twins).does(nodes("n1 memory=10"), apps("app-1 root.a gang=memory:10"))
    one.does(asks("app-1 p1 memory=10 placeholder group=g"), nodes("n2 memory=10"))
    one.does(asks("app-1 r1 memory=10 group=g tag.yunishard/forbiddenNodes=n1"))
    assert one.app("app-1").swapping["r1"].node_id == "n2"
    remember(one).does(released("app-1 p1 type=PLACEHOLDER_REPLACED"))
    assert one.running == ["r1 on n2"]


def test_asks_of_equal_age_keep_their_order() -> None:
    one = Trial(made=Twins).does(apps("app-1 root.a"))
    one.does(asks("app-1 a1 memory=1 created=100", "app-1 a2 memory=1 created=100"))
    one.does(asks("app-1 a3 memory=1 created=200", "app-1 a4 memory=2 created=100"))
    remember(one).does(asks("app-1 a5 memory=1 created=100"))
    remember(one).does(nodes("n1 memory=100"))
    assert one.placed() == ["a5 on n1", "a4 on n1", "a1 on n1", "a2 on n1", "a3 on n1"]


def test_an_ask_that_the_rm_was_told_of_is_not_told_again() -> None:
    one = Trial(made=Twins).does(nodes("n1 memory=4"), apps("app-1 root.a"), asks("app-1 a1 memory=8")).waits(2)
    assert one.scale_ups() == ["a1"]
    remember(one).does(asks("app-1 a2 memory=8")).waits(2)
    assert one.scale_ups() == ["a2"]


def test_one_that_backs_off_is_left_alone_for_as_long() -> None:
    one = Trial("root.a application.unschedasks.backoff=1", made=Twins)
    one.does(nodes("n1 memory=20"), apps("app-1 root.a"), foreign("f1 n1 memory=20"))
    one.does(asks("app-1 a1 memory=8", "app-1 a2 memory=9")).waits(1)
    remember(one).does(nodes("n2 memory=20"))
    assert one.placed() == []
    assert one.waits(28).placed() == []
    assert one.waits(1).placed() == ["a1 on n2", "a2 on n2"]


@pytest.mark.parametrize("order", ["pack", "binpacking"])
def test_one_that_chooses_its_nodes_finds_the_same(order: str) -> None:
    one = Trial(f"root.a node.sort.policy={order}", made=Twins)
    one.does(nodes("n1 memory=10", "n2 memory=10", "n3 memory=10"), apps("app-1 root.a"), asks("app-1 a1 memory=3"))
    remember(one).does(asks("app-1 a2 memory=3", "app-1 a3 memory=3", "app-1 a4 memory=3"))
    remember(one).does(released("app-1 a1"), asks("app-1 a5 memory=3"))
    assert len({line.split()[-1] for line in one.running}) == 2


def test_what_it_used_is_in_its_summary() -> None:
    one = Trial(made=Twins).does(nodes("n1 memory=10"), apps("app-1 root.a"), asks("app-1 a1 memory=4")).waits(10.5)
    remember(one.does(released("app-1 a1"))).waits(31)
    (summary,) = [
        note.part.text for note in one.effects if isinstance(note.part, LogLine) and "summary" in note.part.text
    ]
    assert "used {UNKNOWN: memory=40}" in summary


def test_equal_amounts_are_kept_once() -> None:
    one = Trial(made=Twins).does(nodes("n1 memory=100"), apps("app-1 root.a"))
    one.does(asks("app-1 a1 memory=4"), asks("app-1 a2 memory=4"))
    read = codec.restore_partition(codec.encode_partition(one.partition), name=PARTITION, plugins=(), tuning=DEFAULT)
    a1, a2 = read.allocations.values()
    assert a1.resources is a2.resources
    assert a1.shape is a2.shape


def test_one_that_is_removed_leaves_nothing_behind() -> None:
    one = remember(gang()).does(gone("app-1"))
    assert one.partition.allocations == {}


DERIVED = {"group", "reserved", "partner"}
"""Known by who has it."""


def again(one: Allocation) -> Allocation:
    numbering, lookup = ReferenceEncoder({}), ReferenceDecoder()
    memory = encode_allocation(one, numbering)
    lookup.amounts = [dict(amounts) for amounts in numbering.amounts]
    return AllocationDecoder(lookup, Predicates()).decode(memory, one.application_id)


def fields_of(one: Allocation) -> dict[str, object]:
    return {name: getattr(one, name) for name in Allocation.__slots__ if name not in DERIVED}


@pytest.mark.parametrize("text", ["", "victim", "preemptor", "victim preemptor", "placeholder group=g", "originator"])
def test_what_was_asked_for_is_asked_for(text: str) -> None:
    one = from_message(
        ask(f"app-1 a1 memory=4 gpu=1 priority=-3 created=100 required=n1 {text}"),
        "app-1",
        stamp_ns=5,
    )
    assert fields_of(again(one)) == fields_of(one)


FLAGS = [
    name
    for name, value in fields_of(from_message(ask("app-1 a1 memory=4"), "app-1", stamp_ns=5)).items()
    if value is False
]


@pytest.mark.parametrize("flag", FLAGS)
def test_what_happened_to_it_is_known(flag: str) -> None:
    one = from_message(ask("app-1 a1 memory=4"), "app-1", stamp_ns=5)
    setattr(one, flag, True)
    assert fields_of(again(one)) == fields_of(one)


def test_what_happens_rarely_is_known_too() -> None:
    one = from_message(ask("app-1 a1 memory=4"), "app-1", stamp_ns=5)
    assert fields_of(again(one)) == fields_of(one)
    one.placeholder_created_ns, one.unschedulable_told_at = 17, 1.5
    assert again(one).placeholder_created_ns == 17
    assert again(one).no_victim_told_at == -math.inf
    assert fields_of(again(one)) == fields_of(one)


def test_what_it_demands_is_read_from_its_tags_again() -> None:
    tagged, predicates = ask("app-1 a1 memory=4 tag.yunishard/nodeSelector=zone=a"), Predicates()
    for asks_manager in (False, True):
        predicates.asks_manager = asks_manager
        constraint = predicates.read_constraint(tagged.allocation_tags, "a1")
        assert constraint == Constraint(predicates.read_demands(tagged.allocation_tags), "a1" if asks_manager else "")
        one = from_message(tagged, "app-1", stamp_ns=5, constraint=constraint)
        assert again(one).shape == one.shape
