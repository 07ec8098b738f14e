"""Writing and reading a partition as a whole. That it goes on as before is said of each area in a file of its own, and
of everything together in `tests/properties/test_memory.py`."""

import msgspec
import pytest

from common.rm_messages import SyncBegin, SyncEnd
from partition_worker.engine.application import AppState
from partition_worker.engine.partition import Partition
from partition_worker.engine.snapshot import codec
from partition_worker.engine.snapshot.schema import FORMAT, PartitionSnapshot
from partition_worker.engine.state import DEFAULT
from tests.builders import PARTITION, apps, asks, config, foreign, gone, nodes, released
from tests.trial import Trial
from tests.twins import Twins, remember, twin


def read(data: bytes) -> Partition:
    return codec.restore_partition(data, name=PARTITION, plugins=(), tuning=DEFAULT)


def busy() -> Trial:
    return Trial("root.a max=memory:9; root.b", made=Twins).does(
        nodes("n1 memory=10", "n2 memory=20 gpu=2"),
        apps("app-1 root.a user=bob groups=dev", "app-2 root.b"),
        asks(*(f"app-1 a{number} memory=3" for number in range(4)), "app-2 b1 memory=8 gpu=1"),
        foreign("f1 n2 memory=3"),
    )


def test_an_empty_partition_is_the_same_afterwards() -> None:
    one = Trial("root.a", made=Twins)
    remember(one)
    one.does(nodes("n1 memory=10"), apps("app-1 root.a"), asks("app-1 a1 memory=4"))
    assert one.running == ["a1 on n1"]


def test_it_is_written_in_the_same_way_each_time() -> None:
    first, second = busy(), busy()
    assert (
        codec.encode_partition(first.partition)
        == codec.encode_partition(first.partition)
        == codec.encode_partition(second.partition)
    )


def test_effects_have_the_causes_that_they_would_have_had() -> None:
    one = remember(busy()).does(asks("app-2 b2 memory=1"))
    other = busy().does(asks("app-2 b2 memory=1"))
    assert one.effects == other.effects


def test_what_was_decided_is_not_told_again() -> None:
    data = codec.encode_partition(busy().partition)
    assert read(data).step(busy().now, 100) == []
    assert read(data).drain_events() == []


def test_what_waits_to_be_decided_is_decided_afterwards() -> None:
    one = Trial("root.a", made=Twins).takes(nodes("n1 memory=10"), apps("app-1 root.a"), asks("app-1 a1 memory=4"))
    remember(one).settles()
    assert one.running == ["a1 on n1"]


def test_an_end_stays_the_end() -> None:
    one = busy()
    one.effects += one.partition.retire(one.now)
    assert "was removed" in remember(one).does(apps("app-9 root.a")).told()[-1]
    assert read(codec.encode_partition(one.partition)).objections(config()) != []


def test_another_configuration_finds_what_it_would_have_found() -> None:
    one = remember(busy())
    one.told()
    one.reconfigures("root.a max=memory:12; root.c", nodes="binpacking")
    assert one.queue("root.b").draining
    assert one.placed() == ["a3 on n2"]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"nonsense",
        msgspec.msgpack.encode((FORMAT + 1, None)),
        msgspec.msgpack.encode((FORMAT, [])),
        msgspec.msgpack.encode({"format": FORMAT}),
        codec.encode_partition(Trial().partition)[:-1],
    ],
)
def test_what_is_no_partition_is_damaged(data: bytes) -> None:
    with pytest.raises(codec.SnapshotDamaged):
        read(data)


def test_another_format_is_named() -> None:
    with pytest.raises(codec.SnapshotDamaged, match=f"format {FORMAT + 1}, this release reads format {FORMAT}"):
        read(msgspec.msgpack.encode((FORMAT + 1, None)))


def test_something_that_refers_to_nothing_is_damage() -> None:
    found = msgspec.msgpack.decode(codec.encode_partition(busy().partition))
    lost = PartitionSnapshot.__struct_fields__.index("submitters")
    found[1][lost] = []
    with pytest.raises(codec.SnapshotDamaged, match="IndexError"):
        read(msgspec.msgpack.encode(found))


def test_the_ledger_of_preemptions_and_its_cooldown_go_on() -> None:
    one = Trial("root.a guaranteed=memory:8 preemption.delay=1s; root.b", made=Twins)
    one.does(nodes("n1 memory=8"), apps("app-1 root.a", "app-2 root.b"))
    one.does(*(asks(f"app-2 b{number} memory=2 victim") for number in range(4)))
    one.does(asks("app-1 a1 memory=4 preemptor")).waits(2)
    other = twin(remember(one))
    assert other.preemptions.entries == one.partition.preemptions.entries
    assert len(other.preemptions.entries) == 1
    assert (
        list(other.preemptions.cooldowns.wins.items()) == list(one.partition.preemptions.cooldowns.wins.items()) != []
    )
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
    assert [node.node_id for node in twin(one).nodes] == ["n1"]


LIMITS = """root limit.user.bob=memory:6 limit.user.*=apps:1 limit.group.dev=memory:9;
    root.a limit.group.*=memory:12; root.b"""


def limited() -> Trial:
    return Trial(LIMITS, made=Twins).does(
        nodes("n1 memory=40"),
        apps("app-1 root.a user=bob", "app-2 root.a user=eve groups=dev", "app-3 root.b user=eve groups=dev"),
        asks("app-1 a1 memory=4", "app-1 a2 memory=4", "app-2 b1 memory=5", "app-3 c1 memory=3"),
    )


def test_limits_bind_as_before() -> None:
    one = remember(limited()).does(asks("app-1 a3 memory=2", "app-2 b2 memory=5"))
    assert one.running == ["a1 on n1", "a3 on n1", "c1 on n1"]


def test_what_waits_for_a_limit_goes_on_when_it_is_freed() -> None:
    one = remember(limited()).does(released("app-1 a1"))
    assert "a2 on n1" in one.running
    one.does(gone("app-2"))
    assert "c1 on n1" in one.running


def test_the_group_of_an_application_stays_the_one_that_was_chosen() -> None:
    one = limited()
    one.reconfigures(f"{LIMITS} limit.group.dev=memory:40")
    account = twin(remember(one)).usage.accounts.get(twin(one).applications["app-3"].rank)
    assert account is not None
    assert account.group_name == "dev"


def test_users_with_nothing_are_still_shown() -> None:
    one = Trial("root limit.user.*=memory:9; root.a", made=Twins)
    one.does(nodes("n1 memory=9"), apps("app-1 root.a user=ann"), asks("app-1 a1 memory=4"))
    one.does(gone("app-1"))
    assert [tracker.name for tracker in twin(remember(one)).usage.users.by_name.values()] == ["ann"]
