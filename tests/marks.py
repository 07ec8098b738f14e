"""Which marks of the engine (`state.changes.nodes[key] = None`) the tests need: without such a mark, a recorded
partition would have a wrong record in some test, as no other statement marks the object in that step.

    python -m pytest -p tests.marks tests/partition_worker/engine tests/properties/test_recovery.py

It lists the marks whose removal no test would find. It ends as soon as there are none.
"""

import ast
import sys
from collections import defaultdict
from collections.abc import Hashable
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import pytest

import yunishard.partition_worker.engine
from tests import recorded
from yunishard.partition_worker.engine import durable_records
from yunishard.partition_worker.engine.durable_records import Image, PreemptionRecord, Record, Removed, kind_of
from yunishard.partition_worker.engine.state import Changes

ENGINE: Final = Path(yunishard.partition_worker.engine.__file__).parent
READERS: Final = ("recording.py", "restoring.py")
"""Modules that read the marks."""

REDUNDANT: Final = frozenset(
    {
        ("ledger.py", "move"),
        ("lifecycle.py", "update_after_release"),
        ("lifecycle.py", "update_after_placeholder"),
        ("lifecycle.py", "update_after_removal_of_all"),
        ("lifecycle.py", "leave_queue"),
        ("lifecycle.py", "drop_account"),
    }
)
"""Functions that change a field of an application which their callers have marked in the same step."""

ATTRIBUTES: Final[dict[str, str]] = {
    kind_of(durable_records.PartitionRecord): "partition",
    kind_of(durable_records.ReportRecord): "report",
    kind_of(durable_records.QueueRecord): "queues",
    kind_of(durable_records.NodeRecord): "nodes",
    kind_of(durable_records.ApplicationRecord): "submitted",
    kind_of(durable_records.StateLogRecord): "entered",
    kind_of(durable_records.StatusRecord): "applications",
    kind_of(durable_records.AllocationRecord): "allocations",
    kind_of(durable_records.ForeignRecord): "foreign",
    kind_of(durable_records.ReservationRecord): "reservations",
    kind_of(durable_records.RejectionRecord): "rejections",
    kind_of(durable_records.SubmissionRecord): "submissions",
    kind_of(durable_records.HeldUpdateRecord): "held_updates",
    kind_of(durable_records.PreemptionRecord): "preemptions",
    kind_of(durable_records.CooldownRecord): "cooldowns",
}
"""The attribute of `Changes` by kind of the record."""


class Mark(NamedTuple):
    """A statement that marks an object."""

    path: str
    line: int
    column: int


needed: set[Mark] = set()
"""The marks without which a record would have been wrong."""


@cache
def find_marks() -> dict[Mark, str]:
    """Every mark in the source of the engine, with the function that it is in."""
    found: dict[Mark, str] = {}
    for path in sorted(ENGINE.rglob("*.py")):
        if path.name in READERS:
            continue
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for node in ast.walk(function) if isinstance(function, ast.FunctionDef) else ():
                if isinstance(node, ast.Attribute) and node.attr in ATTRIBUTES.values() and _is_changes(node.value):
                    found[Mark(str(path.relative_to(ENGINE)), node.lineno, node.col_offset)] = function.name
    return found


def _is_changes(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "changes"


_Makers = defaultdict[Hashable, set[Mark]]
"""The marks of each object."""


def _add_caller(makers: _Makers, key: Hashable) -> None:
    """Add the mark that the engine is making."""
    frame = sys._getframe(2)
    path = Path(frame.f_code.co_filename)
    if ENGINE in path.parents and path.name not in READERS:
        line, _, column, _ = list(frame.f_code.co_positions())[frame.f_lasti // 2]
        assert line is not None
        assert column is not None
        makers[key].add(Mark(str(path.relative_to(ENGINE)), line, column))


class _Marked(dict[Hashable, object]):
    """Marked objects of one kind."""

    def __init__(self) -> None:
        self.makers: _Makers = defaultdict(set)

    def __setitem__(self, key: Hashable, value: object) -> None:
        _add_caller(self.makers, key)
        super().__setitem__(key, value)

    def update(self, pairs: object) -> None:  # type: ignore[override]  # the engine passes one argument
        for key, value in dict(pairs).items():  # type: ignore[call-overload]  # a mapping or pairs
            _add_caller(self.makers, key)
            super().__setitem__(key, value)


class _Preemptions(list[PreemptionRecord]):
    """New entries of the preemption log."""

    def __init__(self) -> None:
        self.makers: _Makers = defaultdict(set)

    def append(self, entry: PreemptionRecord) -> None:
        _add_caller(self.makers, "")
        super().append(entry)


class TracedChanges(Changes):
    """Marks that know where they were made."""

    def __init__(self) -> None:
        self.flags: dict[str, _Makers] = {"partition": defaultdict(set), "report": defaultdict(set)}
        super().__init__()
        for name in ATTRIBUTES.values():
            if name not in self.flags:
                setattr(self, name, _Preemptions() if name == "preemptions" else _Marked())

    def __setattr__(self, name: str, value: object) -> None:
        if value is True:
            _add_caller(self.flags[name], "")
        super().__setattr__(name, value)

    def find(self, attribute: str, key: Hashable) -> set[Mark]:
        """The marks of an object."""
        makers: _Makers = self.flags[attribute] if attribute in self.flags else getattr(self, attribute).makers
        return makers[key]


class Traced(recorded.Recorded):
    """A recorded partition whose marks are traced."""

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, TracedChanges() if name == "changes" else value)

    def _record_step(self, image: Image, records: list[Record], marks: Changes) -> None:
        """Without the comparison with a snapshot, which the same tests make when nothing is traced."""
        before = {_name(record): image.find_previous(record) for record in records}
        after = {_name(record): None if isinstance(record, Removed) else record for record in records}
        image.apply(records)
        assert isinstance(marks, TracedChanges)
        for (kind, identity), record in after.items():
            if kind in ATTRIBUTES and record != before[kind, identity]:
                found = marks.find(*_find_key(kind, identity, record))
                if len(found) == 1:
                    needed.update(found)


def _name(record: Record) -> tuple[str, str | int]:
    """The kind and identity of what a record is of."""
    return (record.kind, record.key) if isinstance(record, Removed) else (kind_of(type(record)), record.identity)


def _find_key(kind: str, identity: str | int, record: Record | None) -> tuple[str, Hashable]:
    """The attribute of `Changes`, and the key in it."""
    attribute = ATTRIBUTES[kind]
    if attribute in {"submitted", "entered"} and record is None:
        return "applications", identity
    if attribute == "cooldowns":
        winner, _, loser = str(identity).partition(" ")
        return attribute, (winner, loser)
    return attribute, "" if attribute == "preemptions" else identity


# The plug-in of pytest ------------------------------------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """Trace every partition that is recorded from now on."""
    recorded.Recorded = Traced  # type: ignore[misc]  # before any test module imports it


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol() -> bool | None:
    """Skip the remaining tests once every mark is needed."""
    return None if _find_unneeded() else True


def pytest_sessionfinish(session: pytest.Session) -> None:
    """List the marks that no test needed."""
    for mark, function in _find_unneeded():
        text = (ENGINE / mark.path).read_text(encoding="utf-8").splitlines()[mark.line - 1]
        print(f"\nNOT NEEDED: {mark.path}:{mark.line} in {function}: {text[mark.column :]}")  # noqa: T201
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _find_unneeded() -> list[tuple[Mark, str]]:
    """The marks, with their functions, that no test has needed so far."""
    return [
        (mark, function)
        for mark, function in find_marks().items()
        if mark not in needed and (mark.path, function) not in REDUNDANT
    ]
