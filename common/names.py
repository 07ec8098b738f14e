"""Names: which are valid, and how a partition's name becomes unique among RMs.

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
"""The roles of our processes. As peers of the broker, all but workers have a `peer_name`; the broker that leads is
`BROKER`."""

FRONT_ENDS: Final = (RMPROXY, WEBSERVICE)
"""Roles of which several processes may run at once."""

NUMBERS_PER_INCARNATION: Final = 2**20
"""Epochs and roll-out numbers that one broker can assign. An incarnation is the Unix second in which the broker
started, or later, so numbers of a later broker are always above those of an earlier one.
"""

SUPERVISED: Final = "1"
"""The instance of the proxy and of the web service that the supervisor runs; in a cluster, this is the name of their
host. A restarted one takes over the name, so that the broker detects the restart at once."""

LOCAL_HOST: Final = "local"
"""The name of the only host, and the instance of its supervisor."""

WORKER: Final = "partition_worker"
"""The role of a worker."""

WORKER_PREFIX: Final = "worker/"
"""Precedes the name of a worker's instance in its name as a peer of the broker. The instance that a supervisor gives it
is `HOST.PID-NUMBER`, with the process id of the supervisor."""

FAKE_RM: Final = "fake_rm"
"""The role of the process that keeps a system with simulated nodes from being empty."""

STAND_IN_RM: Final = "simulated"
"""The id with which it registers while no other RM has a partition."""

RECORD: Final = "@record"
FILE: Final = "@file"
READER: Final = "@reader"
LEASE: Final = "@lease"
"""Endpoints within the broker's process: its durable record, the watched file, the validation of large texts, and the
lease of the leader. No partition can have these names."""

JOURNAL: Final = "@journal"
"""The endpoint of the journal within a worker's process."""

PLANNER: Final = "@planner"
"""The peer that makes plans in a forked process, in the worker's process."""

NODE_PARTITION: Final = "si/node-partition"
"""The node attribute that names its partition."""

PREDICATE_PLUGINS: Final = "yunishard.predicates"
"""The entry point under which packages offer predicates."""

OFF: Final = "off"
"""In place of a port's address: the port is not opened."""

INSTANCE: Final = re.compile(r"[A-Za-z0-9_.-]{1,96}")
HOST_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
RM_ID: Final = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
DISTINCT: Final = "~"
"""Precedes the number in a `distinct_name`; occurs in no RM id and no partition name."""
PARTITION: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
QUEUE: Final = re.compile(r"[a-zA-Z0-9_:#/@-]{1,64}")
USER: Final = re.compile(r"[_a-zA-Z][a-zA-Z0-9:#/_.@-]*[$]?")
GROUP: Final = re.compile(r"[_a-zA-Z][a-zA-Z0-9:_.-]*")
PERSON_LENGTH_MAX: Final = 256
"""Characters of the name of a REST user, or of one of the user's groups."""

WHITE_SPACE: Final = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
"""White space around texts of the configuration: that of Unicode, without U+001C to U+001F, which Python adds to it."""

ILLEGAL_QUEUE: Final = (
    "invalid queue name, max 64 characters consisting of alphanumeric characters and "
    "'-', '_', '#', '@', '/', ':' allowed"
)


def is_person(text: str) -> bool:
    """Whether this is a valid name of a REST user or group, which may also be written to a log line."""
    return 0 < len(text) <= PERSON_LENGTH_MAX and text.isprintable()


def normalise_partition_name(rm_id: str, name: str) -> str:
    """Return the full name of an RM's partition: `<rm-id>_<name>`. An empty name is `default`.

    A name with the RM's own prefix, or in the form `[rm-id]name` of YuniKorn's core, gives the same full name. Any
    other prefix is part of the name, so an RM cannot reach a partition of another one.
    """
    if name.startswith(f"[{rm_id}]"):
        name = name[len(rm_id) + 2 :]
    if name.startswith(f"{rm_id}_"):
        return name
    return f"{rm_id}_{name or DEFAULT_PARTITION}"


def distinct_name(rm_id: str, name: str) -> str:
    """Return the full name of a partition whose normalised name belongs to a partition of another RM.

    `a_b_default` can be `b_default` of RM `a` and `default` of RM `a_b`. All such pairs of RM and name have RM ids of
    different lengths, so `a_b_default~1` is only the one and `a_b_default~3` only the other.
    """
    return f"{normalise_partition_name(rm_id, name)}{DISTINCT}{len(rm_id)}"


def usual_name(full_name: str) -> str:
    """Return the full name that the partition's own RM uses, which reveals no other RM."""
    return full_name.partition(DISTINCT)[0]


def external_name(rm_id: str, full_name: str) -> str:
    """Return the name of a partition in its RM's configuration."""
    return usual_name(full_name).removeprefix(f"{rm_id}_")


def lease_name(partition: str, epoch: int) -> str:
    """Return the name of a partition's worker under one lease, for operators."""
    return f"{partition}#{epoch}"


def peer_name(role: str, instance: str) -> str:
    """Return the name of a process, as a peer of the broker."""
    return f"{role}/{instance}"


def role_of(peer: str) -> str:
    """Return the role of a peer of the broker."""
    return peer.partition("/")[0]


def instance_of(peer: str) -> str:
    """Return the instance of a peer of the broker; of a supervisor, that is its host."""
    return peer.partition("/")[2]


def process_label(peer: str) -> str:
    """Return the label `process` of a process's metrics: its name, or its role on the only host."""
    return peer.removesuffix(f"/{SUPERVISED}").removesuffix(f"/{LOCAL_HOST}")


# Lists of RM ids ------------------------------------------------------------------------------------------------------


def parse_rm_ids(text: str) -> tuple[str, ...]:
    """Return the ids in a list such as `rm-1, test-*`, where `*` stands for any text.

    Raises:
        ValueError: no RM can have one of the ids.
    """
    found = tuple(name.strip() for name in text.split(","))
    for name in found:
        if not RM_ID.fullmatch(name.replace("*", "x")):
            raise ValueError(f"{name!r} is no RM id: expected ids with commas between, as in rm-1,test-*")
    return found


def compile_rm_ids(rm_ids: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern that matches the whole id of each RM in a list."""
    return re.compile("|".join(".*".join(map(re.escape, one.split("*"))) for one in rm_ids) or "(?!)")
