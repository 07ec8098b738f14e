"""What is measured is what the table says."""

import pytest

from benchmarks.rest import PATHS, Size, configuration, leaves, measured
from common.config.model import QueueConfig
from common.config.validation import load

pytestmark = [pytest.mark.processes, pytest.mark.timeout(240)]


def count(queue: QueueConfig) -> int:
    return 1 + sum(map(count, queue.queues))


@pytest.mark.parametrize("queues", [3, 40, 2000])
def test_the_tree_has_as_many_queues_as_were_asked_for(queues: int) -> None:
    [root] = load(configuration(queues)).partitions[0].queues
    assert count(root) == queues
    assert len(set(leaves(queues))) == queues - 1 - len(root.queues)


def test_every_kind_of_answer_is_measured() -> None:
    found = measured(Size(nodes=20, queues=10, applications=30), count=2, seconds=3.0)
    assert set(found.waits) == set(PATHS)
    assert all(one.answers >= 2 for one in found.waits.values())
    assert set(found.answering_percent_by_question) == {"partition", "queues", "nodes", "applications"}
    assert 0 < found.answering_percent < 50
