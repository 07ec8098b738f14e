"""The content of the state directories that are kept: what two resource managers built up, and how they continue.

Each resource manager numbers its commands and can continue the session of another process from a `Position`, as the one
that wrote a state directory would.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from tests.conformance.rest import Rest, quoted
from tests.deploy.system import eventually
from tests.processes.peer import Answer, Body, Peer, connected

RM_1: Final = """
partitions:
  - name: default
    usergroupresolver: {type: os}
    nodesortpolicy: {type: binpacking}
    placementrules:
      - {name: provided}
      - {name: user, create: true, parent: {name: fixed, value: root.users}}
    queues:
      - name: root
        submitacl: "*"
        queues:
          - {name: gangs}
          - {name: large, resources: {max: {vcore: 90m}}}
          - name: batch
            properties: {application.sort.policy: fair}
            limits:
              - {limit: alice, users: [alice], maxresources: {vcore: 3m}, maxapplications: 2}
              - {limit: dev, groups: [dev], maxresources: {vcore: 5m}}
          - name: users
            parent: true
            childtemplate: {resources: {max: {vcore: 4m}}, properties: {application.sort.policy: fair}}
  - name: gpu
    queues:
      - name: root
        submitacl: "*"
        queues:
          - {name: greedy}
          - {name: guaranteed, resources: {guaranteed: {vcore: 4m}}, properties: {preemption.delay: 1s}}
"""
RM_2_FIRST: Final = (
    "partitions: [{name: default, queues: [{name: root, submitacl: '*', queues: [{name: a}, {name: b}]}]}]"
)
RM_2: Final = "partitions: [{name: default, queues: [{name: root, submitacl: '*', queues: [{name: b}]}]}]"
"""Without the queue `a`, which drains as an application runs in it."""

CHANGED: Final = f"{RM_1}# changed over REST\n"
"""The second version of the configuration of `rm-1`, with an entry in the audit log."""

CONFIGURATIONS: Final = {"rm-1": RM_1, "rm-2": RM_2_FIRST}
PARTITIONS: Final = {"rm-1": ("rm-1_default", "rm-1_gpu"), "rm-2": ("rm-2_default",)}

HANGING_LOOKUP: Final = '''
import pwd
import time

from yunishard.partition_worker.group_lookup import GroupLookup

find_user = pwd.getpwnam
GroupLookup.__init__.__kwdefaults__["limit_s"] = 600.0


def hang(name):
    if name == "root":
        time.sleep(600)
    return find_user(name)


pwd.getpwnam = hang


class Plugin:
    """Refuses nothing. Its module makes the lookup of the user root hang, so that a submission waits for it."""

    name = "hanging-lookup"

    def read(self, tags):
        return None

    def refuses(self, demand, node):
        return ""
'''

LONG_GANG: Final = {"executionTimeoutMilliSeconds": 100 * 365 * 24 * 3600 * 1000}
"""The placeholders do not time out before the state directory is opened, in whatever year."""

REPLACED, PREEMPTED = 4, 3
"""Types of releases that the resource manager confirms."""


class Position(NamedTuple):
    """The last numbers of each partition: what a process of a resource manager remembers of its session."""

    sent: dict[str, int]
    received: dict[str, int]


class Manager(Peer):
    """A resource manager that numbers its commands, and keeps everything that it hears."""

    def __init__(self, peer: Peer, position: Position | None = None) -> None:
        super().__init__(peer._socket, peer.rm_id)
        self.sent = dict(position.sent) if position else {}
        self._received = dict(position.received) if position else {}
        self.heard: list[Answer] = []

    @property
    def position(self) -> Position:
        return Position(dict(self.sent), dict(self._received))

    def command(self, partition: str, kind: str, body: Body) -> None:
        """Send a numbered command."""
        name = f"{self.rm_id}_{partition}"
        self.sent[name] = self.sent.get(name, 0) + 1
        self.send(kind, body, partition=name, seq=self.sent[name], ack=self._received.get(name, 0))

    def wait_for(self, holds: Callable[["Manager"], bool]) -> None:
        """Receive until it holds."""
        while not holds(self):
            self.heard.append(self.hear())

    def acknowledged(self, partition: str) -> bool:
        """Whether the core has acknowledged, and so recorded, every command to a partition."""
        name = f"{self.rm_id}_{partition}"
        return any(header[2] == name and header[5] == self.sent[name] for header, _ in self.heard)

    def items(self, kind: str, key: str) -> Iterator[Any]:
        """What was heard in this field of these messages."""
        return (item for header, body in self.heard if header[0] == kind for item in body.get(key, ()))

    @property
    def placed(self) -> dict[str, str]:
        """Nodes of new allocations, by key."""
        return {one["allocationKey"]: one["nodeID"] for one in self.items("AllocationResponse", "new")}

    @property
    def released(self) -> dict[str, int]:
        """Types of the releases by the core, by key."""
        found = self.items("AllocationResponse", "released")
        return {one["allocationKey"]: one.get("terminationType", 0) for one in found}

    def confirm(self, partition: str, application: str, key: str, kind: int) -> None:
        release = {"applicationID": application, "allocationKey": key, "terminationType": kind}
        self.command(partition, "AllocationRequest", {"releases": {"allocationsToRelease": [release]}})

    def submit(self, partition: str, application: str, queue: str, user: str, *groups: str, **other: Any) -> None:
        ugi = {"user": user, "groups": groups}
        body = {"applicationID": application, "queueName": queue, "ugi": ugi, **other}
        self.command(partition, "ApplicationRequest", {"new": [body]})

    def ask(self, partition: str, application: str, *keys: str, vcore: int = 1, **other: Any) -> None:
        asks = [
            {"allocationKey": key, "applicationID": application, "resourcePerAlloc": {"vcore": vcore}, **other}
            for key in keys
        ]
        self.command(partition, "AllocationRequest", {"allocations": asks})


@contextmanager
def managers(native: str, positions: dict[str, Position] | None = None) -> Iterator[tuple[Manager, Manager]]:
    """The two resource managers, connected."""
    with connected(native, "rm-1") as one, connected(native, "rm-2") as two:
        at = positions or {}
        yield Manager(one, at.get("rm-1")), Manager(two, at.get("rm-2"))


# Written --------------------------------------------------------------------------------------------------------------


def build_up(one: Manager, two: Manager, rest: Rest) -> None:
    """Bring the system into a state with all that a journal can hold, which nothing but a message will change."""
    for rm in (one, two):
        header, body = rm.register(CONFIGURATIONS[rm.rm_id])
        assert header[0] == "Registered", body
    rest.read("/ws/v1/config?rm=rm-1", post=CHANGED)
    _build_up_gpu(one)
    _build_up_default(one)
    _build_up_second(two)
    one.wait_for(lambda rm: {key for key in ("v0", "v1") if rm.released.get(key) == PREEMPTED} == {"v0", "v1"})
    wait_for(rest, "rm-1_default", "large", lambda application: bool(application.get("reservations")))
    # Messages that this resource manager does not receive: they are sent again after the restart.
    two.ask("default", "later", "unheard-0", "unheard-1")
    wait_for(rest, "rm-2_default", "later", lambda application: len(application.get("allocations", ())) == 2)
    one.submit("default", "looked-up", "root.batch", "root")
    one.ask("default", "looked-up", "held")
    one.wait_for(lambda rm: rm.acknowledged("default"))


def _build_up_gpu(one: Manager) -> None:
    """An ask for its queue's guarantee has preempted two allocations; they are not confirmed yet."""
    one.command("gpu", "NodeRequest", {"nodes": [_node("g1", 4)]})
    one.submit("gpu", "greedy", "root.greedy", "dave", "ops")
    one.ask("gpu", "greedy", "keep-0", "keep-1")
    one.ask("gpu", "greedy", "v0", "v1", preemptionPolicy={"allowPreemptSelf": True})
    one.wait_for(lambda rm: {"keep-0", "keep-1", "v0", "v1"} <= rm.placed.keys())
    one.submit("gpu", "entitled", "root.guaranteed", "erin", "ops")
    one.ask("gpu", "entitled", "entitled-0", vcore=2, preemptionPolicy={"allowPreemptOther": True})


def _build_up_default(one: Manager) -> None:
    nodes = [_node("n1", 10), _node("n2", 10), _node("n3", 4, zone="b"), _node("n4", 6)]
    one.command("default", "NodeRequest", {"nodes": nodes})
    foreign = {"allocationKey": "daemon", "nodeID": "n3", "resourcePerAlloc": {"vcore": 1}}
    one.command("default", "AllocationRequest", {"allocations": [foreign | {"allocationTags": {"foreign": "default"}}]})
    # A gang: one placeholder replaced, one on its way, one waiting for its ask.
    one.submit("default", "gang", "root.gangs", "gina", "ops", placeholderAsk={"vcore": 6}, **LONG_GANG)
    gang = {"taskGroupName": "workers", "vcore": 2}
    one.ask("default", "gang", "place-0", "place-1", "place-2", placeholder=True, **gang)
    one.wait_for(lambda rm: {"place-0", "place-1", "place-2"} <= rm.placed.keys())
    one.ask("default", "gang", "real-0", **gang)
    one.wait_for(lambda rm: REPLACED in rm.released.values())
    first = next(iter(rm for rm, kind in one.released.items() if kind == REPLACED))
    one.confirm("default", "gang", first, REPLACED)
    one.wait_for(lambda rm: "real-0" in rm.placed)
    one.ask("default", "gang", "real-1", **gang)
    one.wait_for(lambda rm: list(rm.released.values()).count(REPLACED) == 2)
    # Limits: the fourth ask of alice waits. A dynamic queue; applications that have ended or were rejected.
    one.submit("default", "limited", "root.batch", "alice", "dev")
    one.ask("default", "limited", "a0", "a1", "a2", "a3")
    one.submit("default", "dynamic", "", "carol", "ops", tags={"team": "blue"})
    one.ask("default", "dynamic", "c0", "c1", priority=5)
    one.submit("default", "ended", "root.batch", "bob", "dev")
    one.ask("default", "ended", "b0")
    one.wait_for(lambda rm: {"a0", "a1", "a2", "c0", "c1", "b0"} <= rm.placed.keys())
    one.command("default", "ApplicationRequest", {"remove": [{"applicationID": "ended"}]})
    one.submit("default", "refused", "root.batch", "not a user", "dev")
    one.wait_for(lambda rm: any(rm.items("ApplicationResponse", "rejected")))
    # A node that drains, an ask that a selector keeps waiting, and one that reserves a node.
    one.command("default", "NodeRequest", {"nodes": [{"nodeID": "n2", "action": 3}]})
    one.submit("default", "large", "root.large", "frank", "ops")
    selector = {"allocationTags": {"yunishard/nodeSelector": "zone=c"}}
    one.ask("default", "large", "nowhere", **selector)
    one.ask("default", "large", "reserves", vcore=9)


def _build_up_second(two: Manager) -> None:
    """A queue drains as the configuration does not have it any more."""
    two.command("default", "NodeRequest", {"nodes": [_node(f"m{number}", 20) for number in range(3)]})
    two.submit("default", "stays", "root.a", "heidi", "ops")
    two.ask("default", "stays", *(f"s{number}" for number in range(30)))
    two.wait_for(lambda rm: len(rm.placed) == 30)
    two.confirm("default", "stays", "s7", 1)
    two.wait_for(lambda rm: "s7" in rm.released)
    extra = {"event.ringBufferCapacity": "50", "health.checkInterval": "7s"}
    two.send("UpdateConfiguration", {"config": RM_2, "extraConfig": extra}, ref="change")
    two.wait_for(lambda rm: any(header[0] == "ConfigurationUpdated" for header, _ in rm.heard))
    two.submit("default", "later", "root.b", "ivan", "ops")
    two.wait_for(lambda rm: rm.acknowledged("default"))


def _node(name: str, vcore: int, **attributes: str) -> Body:
    return {"nodeID": name, "action": 1, "schedulableResource": {"vcore": vcore}, "attributes": attributes}


def wait_for(rest: Rest, partition: str, application: str, holds: Callable[[Any], bool]) -> None:
    """Wait until it holds for an application, as REST shows it."""
    eventually(lambda: holds(rest.read(f"/ws/v1/partition/{partition}/application/{application}")))


# Read again -----------------------------------------------------------------------------------------------------------


def resume(rm: Manager) -> None:
    """Continue the session. The core repeats nothing but what this resource manager has not received."""
    before = rm.position
    rm.send("Resume", {"received": before.received, "acknowledged": before.sent})
    rm.wait_for(lambda rm: any(header[0] == "Registered" for header, _ in rm.heard))
    [registered] = [body for header, body in rm.heard if header[0] == "Registered"]
    assert sorted(registered["partitions"]) == list(PARTITIONS[rm.rm_id])
    assert not any(registered.get("lives", {}).values())


def go_on(one: Manager, two: Manager, *, is_later: bool) -> None:
    """Continue what had begun, and check that everything comes of it exactly once. More than ten minutes later, the ask
    for which victims have not left preempts others.
    """
    for rm in (one, two):
        resume(rm)
    two.wait_for(lambda rm: {"unheard-0", "unheard-1"} <= rm.placed.keys())
    # The lookup is repeated: the user is in the operating system.
    one.wait_for(lambda rm: "held" in rm.placed)
    accepted = [item["applicationID"] for item in one.items("ApplicationResponse", "accepted")]
    assert accepted == ["looked-up"]
    # The second swap of the gang, and the preemption, are completed by the confirmations.
    one.confirm("default", "gang", "place-1", REPLACED)
    one.wait_for(lambda rm: "real-1" in rm.placed)
    for key in ("v0", "v1"):
        one.confirm("gpu", "greedy", key, PREEMPTED)
    one.wait_for(lambda rm: rm.placed.get("entitled-0") == "g1")
    # A released allocation lets the ask run that the limit of its user held back; other asks of the gang still fit.
    one.confirm("default", "limited", "a0", 1)
    one.wait_for(lambda rm: "a3" in rm.placed)
    one.ask("default", "gang", "real-2", taskGroupName="workers", vcore=2)
    one.wait_for(lambda rm: rm.released.get("place-2") == REPLACED)
    two.ask("default", "later", "anew")
    two.wait_for(lambda rm: "anew" in rm.placed)
    assert sorted(two.placed) == ["anew", "unheard-0", "unheard-1"]
    assert two.released == {}
    assert sorted(one.placed) == ["a3", "entitled-0", "held", "real-1"]
    others = dict.fromkeys(("keep-0", "keep-1") if is_later else (), PREEMPTED)
    assert one.released == {"a0": 1, "place-2": REPLACED, **others}
    kinds = {header[0] for rm in (one, two) for header, _ in rm.heard}
    assert not kinds & {"PartitionRestarted", "Refused", "Left", "ResumeWanted"}, kinds


# The picture over REST ------------------------------------------------------------------------------------------------

ROUTES: Final = (
    *("queues", "applications/active", "applications/completed", "applications/rejected", "nodes"),
    *("usage/users", "usage/groups", "placementrules", "preemptions"),
)

NOT_RECORDED: Final = frozenset({"allocationLog", "schedulingAttempted"})
"""Fields of an ask that are empty after a restart until it is tried again (docs/operating/storage.md)."""


def picture(rest: Rest) -> dict[str, Any]:
    """Everything that the routes about partitions show, without what is not recorded, once all workers are there."""
    routes = [f"/ws/v1/partition/{quoted(one)}/queues" for own in PARTITIONS.values() for one in own]
    eventually(lambda: all(rest.ask(route)[0] == HTTPStatus.OK for route in routes))
    found = {
        f"{partition} {route}": rest.read(f"/ws/v1/partition/{quoted(partition)}/{route}")
        for partitions in PARTITIONS.values()
        for partition in partitions
        for route in ROUTES
    }
    found["partitions"] = rest.read("/ws/v1/partitions")
    for rm in PARTITIONS:
        found[f"{rm} config"] = list(rest.ask(f"/ws/v1/config?rm={rm}"))
    for name, users in found.items():
        if name.endswith("usage/users"):
            users[:] = [user for user in users if user["queues"].get("resourceUsage")]
    return _without(found, NOT_RECORDED)


def _without(value: Any, fields: frozenset[str]) -> Any:
    match value:
        case dict():
            return {key: _without(one, fields) for key, one in value.items() if key not in fields}
        case list():
            return [_without(one, fields) for one in value]
    return value
