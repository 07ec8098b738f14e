"""The policies of the tutorial are valid, and their queues are those of the log's groups."""

from pathlib import Path

import pytest

from yunishard.common.config.validation import load
from yunishard.workloads.simulator.node_files import load_nodes, sum_capacity

FOLDER = Path(__file__).parents[2] / "examples" / "policies"


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.yaml")), ids=lambda file: file.stem)
def test_a_policy_is_a_valid_configuration(file: Path) -> None:
    assert [part.name for part in load(file.read_text()).partitions] == ["default"]


def test_the_guaranteed_amounts_fit_the_nodes() -> None:
    capacity = sum_capacity(load_nodes(FOLDER / "nodes.csv"))
    queues = load((FOLDER / "guaranteed.yaml").read_text()).partitions[0].queues[0].queues
    assert sum(int(queue.resources.guaranteed["vcore"]) for queue in queues) * 1000 <= capacity["vcore"] == 960_000
