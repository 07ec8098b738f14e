import pytest

from partition_worker.engine.predicates.predicate import NodeView
from partition_worker.engine.predicates.tolerations import TAINTS, TOLERATIONS, Tolerations

PREDICATE = Tolerations()


def refusal(tolerations: str, taints: str) -> str:
    return PREDICATE.refuses(PREDICATE.read({TOLERATIONS: tolerations}), NodeView("n1", {TAINTS: taints}, {}))


@pytest.mark.parametrize(
    ("tolerations", "taints"),
    [
        ("", ""),
        ("gpu=a100:NoSchedule", "gpu=a100:NoSchedule"),
        ("gpu=a100", "gpu=a100:NoSchedule, gpu=a100:NoExecute"),
        ("gpu:NoSchedule", "gpu=a100:NoSchedule"),
        ("gpu", "gpu=a100:NoExecute"),
        ("*", "gpu=a100:NoSchedule,maintenance:NoExecute"),
        ("*:NoSchedule,maintenance", "gpu:NoSchedule,maintenance:NoExecute"),
        ("gpu=", "gpu:NoSchedule"),
        ("", "slow:PreferNoSchedule"),
    ],
)
def test_a_node_with_tolerated_taints_is_admitted(tolerations: str, taints: str) -> None:
    assert refusal(tolerations, taints) == ""


@pytest.mark.parametrize(
    ("tolerations", "taints", "taint"),
    [
        ("", "gpu:NoSchedule", "gpu:NoSchedule"),
        ("gpu=h100", "gpu=a100:NoSchedule", "gpu=a100:NoSchedule"),
        ("gpu:NoExecute", "gpu:NoSchedule", "gpu:NoSchedule"),
        ("gpu", "gpu:NoSchedule,maintenance:NoExecute", "maintenance:NoExecute"),
        ("gpu=", "gpu=a100:NoSchedule", "gpu=a100:NoSchedule"),
        ("*:NoExecute", "gpu:NoSchedule", "gpu:NoSchedule"),
    ],
)
def test_one_taint_that_is_not_tolerated_is_enough(tolerations: str, taints: str, taint: str) -> None:
    assert refusal(tolerations, taints) == f"node has the taint {taint}, which is not tolerated"


@pytest.mark.parametrize("taints", ["gpu", "gpu:Never", "*:NoSchedule", ":NoSchedule", "gpu=a b:NoSchedule"])
def test_a_taint_that_cannot_be_read_refuses_everybody(taints: str) -> None:
    assert refusal("*", taints) == f"node has the taint {taints!r}, which cannot be read"


@pytest.mark.parametrize("text", ["gpu:Never", ",", "gpu,", "=a", ":NoSchedule", "a b"])
def test_tolerations_that_cannot_be_read_are_refused_with_what_is_right(text: str) -> None:
    with pytest.raises(ValueError, match=r"^tag yunishard/tolerations: cannot read '.*': write key, key=value, or \*"):
        PREDICATE.read({TOLERATIONS: text})
