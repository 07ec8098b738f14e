"""The health of the system: what the latest look at each partition found, as the nine checks that YuniKorn has and one
of our own.

Not here: looking (the auditor of each worker), and asking the workers (`routes.py`).
"""

from collections.abc import Sequence
from typing import Final

from msgspec import DecodeError, Struct
from msgspec.json import Decoder

from webservice.errors import RequestError


class Found(Struct, frozen=True):
    """What a worker says that it found."""

    scheduling_errors: int
    negative: int
    inconsistent: bool
    nodes: int
    reservations: int
    negative_nodes: list[str]
    inconsistent_nodes: list[str]
    orphans_on_nodes: list[str]
    orphans_of_applications: list[str]
    drift: list[str]


class CheckView(Struct, frozen=True, kw_only=True):
    """One check."""

    Name: str
    Succeeded: bool
    Description: str
    DiagnosisMessage: str


class HealthView(Struct, frozen=True, kw_only=True):
    """All checks, and whether none of them failed."""

    Healthy: bool
    HealthChecks: list[CheckView]


_decoder: Final = Decoder(Found)
_CHECKS: Final = (
    ("Scheduling errors", "Check for scheduling error entries in metrics"),
    ("Failed nodes", "Check for failed nodes entries in metrics"),
    ("Negative resources", "Check for negative resources in the partitions"),
    ("Negative resources", "Check for negative resources in the nodes"),
    ("Consistency of data", "Check if total partition resource == sum of the node resources from the partition"),
    (
        "Consistency of data",
        "Check if node total resource = allocated resource + occupied resource + available resource",
    ),
    ("Reservation check", "Check the reservation nr compared to the number of nodes"),
    ("Orphan allocation on node check", "Check if there are orphan allocations on the nodes"),
    ("Orphan allocation on app check", "Check if there are orphan allocations on the applications"),
    ("Audit", "Check if every sum is that of the allocations"),
)
"""Name and description of each check: those of YuniKorn, in its order, and our own."""


def view(bodies: Sequence[tuple[str, bytes]]) -> HealthView:
    """The health of all partitions together, of each its full name and what its worker said.

    Raises:
        RequestError: a worker said what cannot be read.
    """
    found: list[tuple[str, Found]] = []
    for name, body in bodies:
        try:
            found.append((name, _decoder.decode(body)))
        except DecodeError as error:
            raise RequestError(503, f"Partition {name} answered what cannot be read: {error}") from None
    checks = _checks(found)
    return HealthView(Healthy=all(check.Succeeded for check in checks), HealthChecks=checks)


def _checks(found: Sequence[tuple[str, Found]]) -> list[CheckView]:
    return [
        CheckView(Name=name, Succeeded=not failed, Description=description, DiagnosisMessage=diagnosis)
        for (name, description), (diagnosis, failed) in zip(_CHECKS, _diagnoses(found), strict=True)
    ]


def _diagnoses(found: Sequence[tuple[str, Found]]) -> list[tuple[str, bool]]:
    """What each check says, and whether it failed."""
    errors = sum(one.scheduling_errors for _, one in found)
    negative = [name for name, one in found for _ in range(one.negative)]
    negative_nodes = [node for _, one in found for node in one.negative_nodes]
    inconsistent = [name for name, one in found if one.inconsistent]
    inconsistent_nodes = [node for _, one in found for node in one.inconsistent_nodes]
    ratios = " ".join(_ratio(one) for _, one in found)
    on_nodes = [orphan for _, one in found for orphan in one.orphans_on_nodes]
    of_applications = [orphan for _, one in found for orphan in one.orphans_of_applications]
    drift = [f"{name}: {problem}" for name, one in found for problem in one.drift]
    return [
        (f"There were {errors} scheduling errors logged in the metrics", errors > 0),
        ("There were 0 failed nodes logged in the metrics", False),  # they are refused before they reach a partition
        (f"Partitions with negative resources: {_quoted(negative)}", bool(negative)),
        (f"Nodes with negative resources: {_quoted(negative_nodes)}", bool(negative_nodes)),
        (f"Partitions with inconsistent data: {_quoted(inconsistent)}", bool(inconsistent)),
        (f"Nodes with inconsistent data: {_quoted(inconsistent_nodes)}", bool(inconsistent_nodes)),
        (f"Reservation/node nr ratio: [{ratios}]", False),
        (f"Orphan allocations: [{' '.join(on_nodes)}]", bool(on_nodes)),
        (f"OrphanAllocations: [{' '.join(of_applications)}]", bool(of_applications)),
        (f"Sums that drifted: {_quoted(drift)}", bool(drift)),
    ]


def _ratio(found: Found) -> str:
    return f"{found.reservations / found.nodes:.6f}" if found.nodes else "NaN"


def _quoted(names: Sequence[str]) -> str:
    return "[" + " ".join(f'"{name}"' for name in names) + "]"
