"""What things may be called, and how a partition's name is made unique among resource managers.

Not here: queue paths in the tree (`engine/queues`), placement's own name cleaning (`engine/placement`).
"""

import re
from collections.abc import Iterable
from typing import Final

DEFAULT_PARTITION: Final = "default"
ROOT: Final = "root"
RECOVERY_QUEUE: Final = "root.@recovery@"
BROKER: Final = "broker"
SUPERVISOR: Final = "supervisor"
RMPROXY: Final = "rmproxy"
WEBSERVICE: Final = "webservice"
"""Our processes, as peers of the broker; the name of a worker is its `worker_name`."""

WORKER: Final = "partition_worker"
"""The role of a worker."""

RECORD: Final = "@record"
FILE: Final = "@file"
READER: Final = "@reader"
"""Inside the broker's process: where versions of configurations are kept, the watched file, and who has large texts
read. No partition can be called so."""

JOURNAL: Final = "@journal"
"""Inside a worker's process: where its steps are kept."""

NODE_PARTITION: Final = "si/node-partition"
"""The node attribute that names its partition."""

PREDICATE_PLUGINS: Final = "yunishard.predicates"
"""The entry point under which packages offer predicates."""

OFF: Final = "off"
"""In place of the address of a port: it is not opened."""

RM_ID: Final = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
DISTINCT: Final = "~"
"""Comes before the number in a `distinct_name`; no RM id and no partition name has it."""
PARTITION: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
QUEUE: Final = re.compile(r"[a-zA-Z0-9_:#/@-]{1,64}")
USER: Final = re.compile(r"[_a-zA-Z][a-zA-Z0-9:#/_.@-]*[$]?")
GROUP: Final = re.compile(r"[_a-zA-Z][a-zA-Z0-9:_.-]*")
PERSON_LENGTH_MAX: Final = 256
"""Characters of a user or group that somebody over REST is, or is in."""

WHITE_SPACE: Final = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
"""What texts of the configuration are trimmed of: Unicode's white space, without the separators U+001C to U+001F that
Python counts among it."""

ILLEGAL_QUEUE: Final = (
    "invalid queue name, max 64 characters consisting of alphanumeric characters and "
    "'-', '_', '#', '@', '/', ':' allowed"
)


def is_person(text: str) -> bool:
    """Whether it may be a user or group that somebody over REST is, or is in, and stand in a line of a log."""
    return 0 < len(text) <= PERSON_LENGTH_MAX and text.isprintable()


def normalise_partition_name(rm_id: str, name: str) -> str:
    """The name of an RM's partition inside the core: `<rm-id>_<name>`.

    An empty name is `default`; a name that already carries the sender's own prefix, or the bracket form `[rm-id]name`
    that the scheduler interface's own core uses, comes out the same. Any other prefix is part of the name, so one RM
    cannot reach another's partition.
    """
    if name.startswith(f"[{rm_id}]"):
        name = name[len(rm_id) + 2 :]
    if name.startswith(f"{rm_id}_"):
        return name
    return f"{rm_id}_{name or DEFAULT_PARTITION}"


def distinct_name(rm_id: str, name: str) -> str:
    """The full name of a partition whose usual one, `normalise_partition_name`, belongs to a partition of another RM.

    `a_b_default` can be `b_default` of RM `a` and `default` of RM `a_b`. All such pairs of RM and name have RM ids of
    different lengths, so `a_b_default~1` is only the one and `a_b_default~3` only the other.
    """
    return f"{normalise_partition_name(rm_id, name)}{DISTINCT}{len(rm_id)}"


def usual_name(full_name: str) -> str:
    """The full name as the partition's own RM knows it, which learns of no other RM by it."""
    return full_name.partition(DISTINCT)[0]


def external_name(rm_id: str, full_name: str) -> str:
    """The partition's name as its own RM configured it."""
    return usual_name(full_name).removeprefix(f"{rm_id}_")


def worker_name(partition: str, epoch: int) -> str:
    """The worker of a partition under one lease, as a peer of the broker: one that lost its lease has another name than
    the one that took over.
    """
    return f"{partition}#{epoch}"


# Lists of RM ids ------------------------------------------------------------------------------------------------------


class RmIdError(ValueError):
    """A text in which one of the ids is none that a resource manager can have; it says which."""


def parse_rm_ids(text: str) -> tuple[str, ...]:
    """The ids in a text; blanks around them do not count.

    Raises:
        RmIdError: one that no resource manager can have.
    """
    found = tuple(name.strip() for name in text.split(","))
    for name in found:
        if not RM_ID.fullmatch(name.replace("*", "x")):
            raise RmIdError(f"{name!r} is no RM id: expected ids with commas between, as in rm-1,test-*")
    return found


def compile_rm_ids(rm_ids: Iterable[str]) -> re.Pattern[str]:
    """What matches the whole id of every resource manager that one of these means."""
    return re.compile("|".join(".*".join(map(re.escape, one.split("*"))) for one in rm_ids) or "(?!)")
