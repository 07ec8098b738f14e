"""Answers of workers and batches of rows, with defaults so that a test shows only what matters."""

from yunishard.common.messages.kinds import Resources
from yunishard.common.messages.query_messages import (
    Account,
    Began,
    Ended,
    EndedApplication,
    Happened,
    PartitionEntry,
    Sample,
    Usage,
)
from yunishard.webservice.history.collector import ReadPosition, RowBatch

S = 10**9
MINUTE = 60 * S
NOW = 1_800_000_000 * S
"""A whole hour."""

DEFAULT = PartitionEntry(full_name="rm-1_default", name="default", rm_id="rm-1")
GPU = PartitionEntry(full_name="rm-1_gpu", name="gpu", rm_id="rm-1")
OTHER = PartitionEntry(full_name="rm-2_default", name="default", rm_id="rm-2")


def account(
    *happened: Happened,
    instance: str = "one",
    first: int = 0,
    following: int | None = None,
    tracked: bool = True,
    ended: list[EndedApplication] | None = None,
    sample: Sample | None = None,
    keys: list[str] | None = None,
) -> Account:
    """Of as many events as happened, unless it is said with which number it goes on."""
    return Account(
        instance=instance,
        tracked=tracked,
        first=first,
        next=first + len(happened) if following is None else following,
        first_ns=happened[0].at_ns if happened else 0,
        last_ns=happened[-1].at_ns if happened else 0,
        happened=list(happened),
        ended=ended or [],
        sample=sample,
        keys=keys,
    )


def began(key: str, at_ns: int = NOW, *, app: str = "app-1", queue: str = "root.a", user: str = "bob") -> Began:
    return Began(at_ns, key, app, queue, user, "n1", {"memory": 4})


def gone(
    key: str,
    at_ns: int = NOW + S,
    *,
    app: str = "app-1",
    queue: str = "root.a",
    user: str = "bob",
    how: str = "STOPPED_BY_RM",
) -> Ended:
    return Ended(at_ns, key, app, queue, user, "n1", {"memory": 4}, how)


def application(
    name: str = "app-1",
    at_ns: int = NOW,
    *,
    queue: str = "root.a",
    user: str = "bob",
    state: str = "Completed",
    message: str = "",
) -> EndedApplication:
    """It ended at this time, and was submitted ten seconds earlier."""
    used: dict[str, Resources] = {"large": {"memory": 20}}
    return EndedApplication(name, queue, user, ["dev"], state, at_ns - 10 * S, at_ns - 9 * S, at_ns, message, used)


def usage(name: str, memory: int = 1, running: int = 1) -> Usage:
    return Usage(name, running, {"memory": memory})


def sample(*queues: Usage, users: list[Usage] | None = None, groups: list[Usage] | None = None) -> Sample:
    return Sample(3, 20, 4, {"memory": 10}, {"memory": 4}, list(queues), users or [], groups or [])


def portion(
    *happened: Happened,
    partition: PartitionEntry = DEFAULT,
    ended: list[EndedApplication] | None = None,
    next_event: int = 0,
    keys: list[str] | None = None,
    at_ns: int = NOW,
    sample: Sample | None = None,
) -> RowBatch:
    place = ReadPosition(instance="one", next_event=next_event)
    return RowBatch(partition, place, at_ns, account(*happened, ended=ended, keys=keys, sample=sample))
