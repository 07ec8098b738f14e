"""Whatever validation accepts, a partition that runs can take; and how it came to a configuration leaves no trace.

`make test` plays the same examples each time; PROPERTIES=long plays many more, other ones each time.
"""

import os

from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from msgspec.structs import replace

from tests.builders import PARTITION, PROVIDED_CREATE, apps, asks, gone, nodes
from tests.invariants import check
from tests.properties.configurations import configurations, pairs_of_configurations
from tests.trial import read_all_settings
from yunishard.common.config.model import PartitionConfig, QueueConfig
from yunishard.common.config.problems import ConfigError
from yunishard.common.config.validation import find_build_problems, load
from yunishard.common.resources import Limit
from yunishard.partition_worker.engine.partition import Partition
from yunishard.partition_worker.engine.queues.tree import Settings, settings_of

LONG = os.environ.get("PROPERTIES") == "long"
START_S = 1_700_000_000.0
NODES = nodes("n1 memory=40 vcore=4000", "n2 memory=40 vcore=4000 gpu=2")
APPS_MAX = 6
AMOUNTS = ("memory=3", "memory=20 vcore=500", "gpu=1", "memory=1")

profile = settings(
    max_examples=1000 if LONG else 25,
    phases=tuple(Phase) if LONG else (Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)

Asks = list[tuple[int, str, int]]
ASKS = st.lists(st.tuples(st.integers(0, 30), st.sampled_from(AMOUNTS), st.integers(-1, 2)), max_size=12)
"""Which queue, what, and with which priority."""


def first_partition(text: str) -> PartitionConfig:
    """The only partition that is looked at, if the text has one and is accepted."""
    try:
        partitions = load(text).partitions
    except ConfigError:
        partitions = ()
    assume(partitions)
    return partitions[0]


@st.composite
def two(draw: DrawFn) -> tuple[PartitionConfig, PartitionConfig]:
    """Two configurations that validation accepts, with little or much in common."""
    pair = draw(st.one_of(pairs_of_configurations(partitions=1), st.tuples(*[configurations(partitions=1)] * 2)))
    before, after = (first_partition(text) for text in pair)
    return before, after


def opened(config: PartitionConfig) -> PartitionConfig:
    """The same queues for everybody, and any queue is made that somebody asks for."""
    root = replace(config.root, submit_acl="*")
    return replace(config, queues=(root,), placement_rules=(PROVIDED_CREATE,))


def leaves(config: QueueConfig, path: str = "root") -> list[str]:
    if not config.is_parent:
        return [path, f"{path}.below"]
    below = [leaf for child in config.queues for leaf in leaves(child, f"{path}.{child.name}")]
    return [*below, f"{path}.dyn", f"{path}.deep.dyn"]


class Life:
    """A partition with its time, checked after each step."""

    def __init__(self, config: PartitionConfig) -> None:
        self.now = START_S
        self.partition = Partition(config, name=PARTITION, now=self.now)
        self.partition.apply(NODES, self.now)

    def uses(self, config: PartitionConfig, wanted: Asks) -> None:
        """Applications in all kinds of queues, which ask for something."""
        paths = leaves(config.root)
        for number, (place, amount, priority) in enumerate(wanted):
            app = f"app-{place % APPS_MAX}"
            self.partition.apply(apps(f"{app} {paths[place % len(paths)]} user=bob groups=dev"), self.now)
            self.partition.apply(asks(f"{app} k{number} {amount} priority={priority}"), self.now)
        self.settles()

    def becomes(self, config: PartitionConfig) -> None:
        assert self.partition.objections(config) == []
        self.partition.reconfigure(config, self.now)
        check(self.partition)
        for path, expected in read_all_settings(config).items():
            queue = self.partition.tree.find(path)
            assert queue is not None, path
            assert (queue.managed, queue.state, settings_of(queue)) == (True, "Active", expected)
        self.settles()

    def settles(self) -> None:
        while not self.partition.idle:
            self.partition.step(self.now, 100)
            check(self.partition)

    def empties(self) -> None:
        """Every application leaves, and the cleaner runs."""
        self.partition.apply(gone(*self.partition.applications), self.now)
        for _ in range(3):
            self.now += 31.0
            self.partition.step(self.now, 0)
            check(self.partition)
            self.settles()


Shown = dict[str, tuple[Settings, bool, str, Limit, list[str]]]


def tree_of(partition: Partition) -> Shown:
    """Everything that is true of the queues but the order in which they came."""
    return {
        queue.path: (settings_of(queue), queue.managed, queue.state, queue.fair_maximum, sorted(queue.children))
        for queue in partition.tree
    }


def rest_of(partition: Partition) -> tuple[object, ...]:
    nodes = partition.nodes
    return (
        partition.config,
        partition.placement.describe(),
        partition.placement.problem,
        partition.usage._limits,
        (nodes.policy, nodes.weights, [node.node_id for node in nodes.index]),
    )


@given(pair=two(), wanted=ASKS, more=ASKS)
@profile
def test_what_validation_accepts_a_busy_partition_takes_and_its_books_agree(
    pair: tuple[PartitionConfig, PartitionConfig], wanted: Asks, more: Asks
) -> None:
    before, after = (opened(config) for config in pair)
    assume(not find_build_problems(before) and not find_build_problems(after))
    life = Life(before)
    life.uses(before, wanted)
    running = {key for key, one in life.partition.allocations.items() if one.node_id}
    life.becomes(after)
    life.uses(after, more)
    assert running <= life.partition.allocations.keys(), "a change takes nothing away"
    life.becomes(before)
    life.becomes(after)


@given(pair=two(), wanted=ASKS)
@profile
def test_one_configuration_after_another_is_as_if_only_the_last_had_been(
    pair: tuple[PartitionConfig, PartitionConfig], wanted: Asks
) -> None:
    before, after = pair
    assume(not find_build_problems(before) and not find_build_problems(after))
    fresh = Life(after)
    assume(not fresh.partition.placement.problem)
    life = Life(opened(before))
    life.uses(before, wanted)
    life.becomes(after)
    life.empties()
    assert tree_of(life.partition) == tree_of(fresh.partition)
    assert rest_of(life.partition) == rest_of(fresh.partition)
    assert all(not queue.pending or not any(queue.pending.values()) for queue in life.partition.tree)


@given(pair=two(), wanted=ASKS)
@profile
def test_a_partition_objects_to_what_it_could_not_have_begun_with_and_to_nothing_else(
    pair: tuple[PartitionConfig, PartitionConfig], wanted: Asks
) -> None:
    before, after = pair
    assume(not find_build_problems(before))
    life = Life(opened(before))
    life.uses(before, wanted)
    earlier = (tree_of(life.partition), rest_of(life.partition))
    problems = find_build_problems(after)
    possible = not problems and not Partition(after, name=PARTITION, now=START_S).placement.problem
    assert (life.partition.objections(after) == []) is possible
    assert (tree_of(life.partition), rest_of(life.partition)) == earlier, "asking changes nothing"


@given(pair=two(), wanted=ASKS)
@profile
def test_a_partition_can_be_retired_at_any_time(pair: tuple[PartitionConfig, PartitionConfig], wanted: Asks) -> None:
    before, after = (opened(config) for config in pair)
    assume(not find_build_problems(before) and not find_build_problems(after))
    life = Life(before)
    life.uses(before, wanted)
    life.becomes(after)
    life.partition.retire(life.now)
    life.empties()
    assert [queue.path for queue in life.partition.tree] == ["root"]
    assert not life.partition.applications
