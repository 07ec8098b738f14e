"""Writing and reading a partition as a whole. That it goes on as before is said of each area in a file of its own, and
of everything together in `tests/properties/test_memory.py`."""

import msgspec
import pytest

from partition_worker.engine import memory
from partition_worker.engine.memory.model import FORMAT, PartitionMemory
from partition_worker.engine.partition import Partition
from partition_worker.engine.tuning import DEFAULT
from tests.builders import PARTITION, apps, asks, config, foreign, nodes
from tests.trial import Trial
from tests.twins import Twins, remember


def read(data: bytes) -> Partition:
    return memory.restored(data, name=PARTITION, plugins=(), tuning=DEFAULT)


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
    assert memory.written(first.partition) == memory.written(first.partition) == memory.written(second.partition)


def test_effects_have_the_causes_that_they_would_have_had() -> None:
    one = remember(busy()).does(asks("app-2 b2 memory=1"))
    other = busy().does(asks("app-2 b2 memory=1"))
    assert one.effects == other.effects


def test_what_was_decided_is_not_told_again() -> None:
    data = memory.written(busy().partition)
    assert read(data).schedule(busy().now, 100) == []
    assert read(data).happenings() == []


def test_what_waits_to_be_decided_is_decided_afterwards() -> None:
    one = Trial("root.a", made=Twins).takes(nodes("n1 memory=10"), apps("app-1 root.a"), asks("app-1 a1 memory=4"))
    remember(one).settles()
    assert one.running == ["a1 on n1"]


def test_an_end_stays_the_end() -> None:
    one = busy()
    one.effects += one.partition.retire(one.now)
    assert "was removed" in remember(one).does(apps("app-9 root.a")).told()[-1]
    assert read(memory.written(one.partition)).objections(config()) != []


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
        memory.written(Trial().partition)[:-1],
    ],
)
def test_what_is_no_partition_is_damaged(data: bytes) -> None:
    with pytest.raises(memory.MemoryDamaged):
        read(data)


def test_another_format_is_named() -> None:
    with pytest.raises(memory.MemoryDamaged, match=f"format {FORMAT + 1}, this release reads {FORMAT}"):
        read(msgspec.msgpack.encode((FORMAT + 1, None)))


def test_something_that_refers_to_nothing_is_damage() -> None:
    found = msgspec.msgpack.decode(memory.written(busy().partition))
    lost = PartitionMemory.__struct_fields__.index("submitters")
    found[1][lost] = []
    with pytest.raises(memory.MemoryDamaged, match="IndexError"):
        read(msgspec.msgpack.encode(found))
