"""Fill a running system with one large partition, for trials of commands, dashboard and REST by hand.

Start a system, and then this in another terminal; it says when the partition is built, and stays connected until it is
interrupted:

    .venv/bin/yunishard up --ephemeral --native tcp://127.0.0.1:29090 --grpc off --rest 127.0.0.1:29080
    .venv/bin/python -m tests.big_partition --rm tcp://127.0.0.1:29090
    curl -s 'http://127.0.0.1:29080/ws/v1/partition/default/table/applications?limit=5&sort=-pending'

It has 2,000 queues, 5,000 nodes and 20,000 applications, unless options say otherwise; `--scale 0.1` makes a tenth.
`--churn 100` ends and starts so many pods each second. The ids of applications tell what they wait for
(`WAITING`): `app-00072-queue-maximum`. For tests without a system, `commands` has what an RM sends.
"""
# ruff: noqa: T201 - prints its progress

import argparse
import asyncio
from collections.abc import Iterator, Sequence
from time import monotonic
from typing import Final, NamedTuple

from benchmarks.shapes import batches
from yunishard.common.messages.kinds import Command, Resources
from yunishard.common.messages.rm_messages import (
    NODE_CREATE,
    NODE_CREATE_DRAIN,
    AddApplicationRequest,
    Allocation,
    AllocationRequest,
    AllocationResponse,
    ApplicationRequest,
    NodeInfo,
    NodeRequest,
    UserGroupInformation,
)
from yunishard.sdk.client import ResourceManager
from yunishard.sdk.items import release

GIB: Final = 1 << 30
BATCH: Final = 500
"""Items of an update."""
LEAVES: Final = 49
"""Leaf queues of each parent."""
USERS, GROUPS = 200, 20
QUIET_S: Final = 3.0
"""Once ordinary pods run and there are no results for so long, everything that can be placed is."""

WAITING: Final = {
    72: "queue-maximum",
    76: "queue-applications",
    80: "user-limit",
    84: "group-limit",
    87: "no-node",
    89: "unschedulable-node",
    91: "gang",
    93: "unknown-resource",
    95: "parent-maximum",
    97: "many-shapes",
    99: "rejected",
}
"""What applications wait for whose number ends with these two digits or more, up to the next ones; those below run."""


class Scale(NamedTuple):
    """Of the partition."""

    queues: int = 2_000
    nodes: int = 5_000
    applications: int = 20_000

    @property
    def parents(self) -> int:
        return max(1, (self.queues - 1) // (LEAVES + 1))


def config(scale: Scale) -> str:
    """Parents with leaves: the first of each parent has a small maximum, the next three other limits; the first parent
    has a small maximum itself.
    """
    lines = ["partitions:", "- name: default", "  queues:", "  - name: root", '    submitacl: "*"', "    queues:"]
    for parent in range(scale.parents):
        most = "{vcore: 40, memory: 160Gi}" if parent == 0 else "{vcore: 8000, memory: 32Ti}"
        lines += [f"    - name: team-{parent:02}", f"      resources: {{max: {most}}}", "      queues:"]
        for leaf in range(LEAVES):
            lines.append(f"      - name: {leaf_name(leaf)}")
            match leaf:
                case 0:
                    lines.append("        resources: {max: {vcore: 4, memory: 16Gi}}")
                case 1:
                    lines.append("        maxapplications: 2")
                case 2:
                    limit = "{limit: each user, users: ['*'], maxresources: {vcore: 2}}"
                    lines.append(f"        limits: [{limit}]")
                case 3:
                    limit = "{limit: groups, groups: [group-03, '*'], maxresources: {vcore: 3}, maxapplications: 5}"
                    lines.append(f"        limits: [{limit}]")
                case _ if parent and leaf % 5 == 0:
                    lines.append("        resources: {guaranteed: {vcore: 20, memory: 80Gi}}")
    return "\n".join(lines) + "\n"


def leaf_name(leaf: int) -> str:
    """The last part of the path of a leaf."""
    return {0: "small", 1: "two-at-once", 2: "per-user", 3: "per-group"}.get(leaf, f"q{leaf:02}")


def nodes(scale: Scale) -> Iterator[NodeInfo]:
    """One in 50 takes no allocations, one in 20 has GPUs, and some are smaller."""
    for number in range(scale.nodes):
        cores = (16, 32, 32, 64)[number % 4]
        resources = {"vcore": cores * 1000, "memory": 4 * cores * GIB, "pods": 110}
        if number % 20 == 7:
            resources["nvidia.com/gpu"] = 4
        name, rack = f"node-{number:05}", f"rack-{number // 40:03}"
        attributes = {"si/hostname": f"{name}.example", "si/rackname": rack, "si/instance-type": f"m{cores}"}
        action = NODE_CREATE_DRAIN if number % 50 == 49 else NODE_CREATE
        yield NodeInfo(node_id=name, action=action, attributes=attributes, schedulable_resource=resources)


def foreign(scale: Scale) -> Iterator[Allocation]:
    """What other schedulers run on some nodes."""
    for number in range(3, scale.nodes, 25):
        yield Allocation(
            allocation_key=f"daemon-{number:05}",
            node_id=f"node-{number:05}",
            allocation_tags={"foreign": "default"},
            resource_per_alloc={"vcore": 500, "memory": GIB},
        )


def reason_of(number: int) -> str:
    """What an application waits for; empty if it runs."""
    return next((WAITING[least] for least in reversed(WAITING) if number % 100 >= least), "")


def name_of(number: int) -> str:
    """The id of an application."""
    reason = reason_of(number)
    return f"app-{number:05}-{reason}" if reason else f"app-{number:05}"


def application(number: int, scale: Scale) -> AddApplicationRequest:
    """An application in a queue with the limit that it waits for."""
    reason, hundred = reason_of(number), number // 100
    parent = 1 + hundred % (scale.parents - 1) if scale.parents > 1 else 0
    special = {"queue-maximum": 0, "queue-applications": 1, "user-limit": 2, "group-limit": 3}
    leaf = special.get(reason, 4 + number % (LEAVES - 4))
    if reason == "parent-maximum":
        parent = 0
    queue = "root.nosuch.leaf" if reason == "rejected" else f"root.team-{parent:02}.{leaf_name(leaf)}"
    user = number % USERS
    return AddApplicationRequest(
        application_id=name_of(number),
        queue_name=queue,
        ugi=UserGroupInformation(user=f"user-{user:03}", groups=[f"group-{user % GROUPS:02}"]),
        placeholder_ask={"vcore": 400_000, "memory": 40 * GIB} if reason == "gang" else {},
    )


def asks(number: int) -> Iterator[Allocation]:
    """One to three pods, or what waits."""
    reason, cores = reason_of(number), 1 + number % 4
    size: Resources = {"vcore": 1000 * cores, "memory": 4 * cores * GIB, "pods": 1}
    count, tags = 1 + number % 3, {}
    match reason:
        case "rejected":
            return
        case "no-node":
            size = {"vcore": 100_000, "memory": 4 * GIB, "pods": 1}
        case "unknown-resource":
            size = {**size, "example.com/fpga": 1}
        case "unschedulable-node":
            tags = {"yunikorn.apache.org/requiredNode": "node-00049"}
        case "many-shapes":
            count = 20
        case "gang":
            count = 4
    for pod in range(count):
        yield Allocation(
            allocation_key=f"pod-{number:05}-{pod}",
            application_id=name_of(number),
            resource_per_alloc={**size, **odd_size(reason, pod)},
            allocation_tags=tags,
            priority=pod if reason == "many-shapes" else int(number % 7 == 0),
            task_group_name="workers" if reason == "gang" else "",
            placeholder=reason == "gang",
        )


def odd_size(reason: str, pod: int) -> Resources:
    """What a pod needs that has another size than the others: the last placeholder of a gang fits on no node."""
    if reason == "many-shapes":
        return {"vcore": 200_000 + pod}
    return {"vcore": 100_000} if reason == "gang" and pod == 3 else {}


def commands(scale: Scale) -> Iterator[Command]:
    """Everything that the RM sends, in parts."""
    for some in batches(list(nodes(scale)), BATCH):
        yield NodeRequest(nodes=[*some])
    yield AllocationRequest(allocations=list(foreign(scale)))
    for numbers in batches(range(scale.applications), BATCH):
        yield ApplicationRequest(new=[application(number, scale) for number in numbers])
        yield AllocationRequest(allocations=[one for number in numbers for one in asks(number)])


# In a running system --------------------------------------------------------------------------------------------------


async def build(rm: ResourceManager, scale: Scale) -> None:
    """Send everything; returns when the core has accepted it."""
    for command in commands(scale):
        match command:
            case NodeRequest():
                await rm.update_nodes(command.nodes)
            case ApplicationRequest():
                await rm.update_applications(new=command.new)
            case AllocationRequest():
                await rm.update_allocations(allocations=command.allocations)


async def replace_pods(rm: ResourceManager, scale: Scale, each_second: int) -> None:
    """End pods of running applications and start others, for ever."""
    running = [number for number in range(scale.applications) if not reason_of(number)]
    turn = 0
    while True:
        turns = [divmod(turn + step, len(running)) for step in range(max(1, each_second // 10))]
        turn += len(turns)
        ended = [
            release(name_of(running[at]), f"pod-{running[at]:05}-{'0' if not lap else f'r{lap}'}") for lap, at in turns
        ]
        started: Sequence[Allocation] = [
            Allocation(
                allocation_key=f"pod-{running[at]:05}-r{lap + 1}",
                application_id=name_of(running[at]),
                resource_per_alloc={"vcore": 1000, "memory": GIB, "pods": 1},
            )
            for lap, at in turns
        ]
        await rm.update_allocations(allocations=started, releases=ended)
        await asyncio.sleep(0.1)


async def run(address: str, rm_id: str, scale: Scale, churn: int) -> None:
    """Build the partition, and stay connected."""
    began, placed, last = monotonic(), 0, monotonic()
    async with await ResourceManager.connect(address, rm_id=rm_id, config=config(scale), timeout_s=60) as rm:
        building = asyncio.create_task(build(rm, scale))
        churning: asyncio.Task[None] | None = None
        ordinary = sum(len([*asks(number)]) for number in range(scale.applications) if not reason_of(number))
        results = aiter(rm.results())
        while True:
            waiting = asyncio.ensure_future(anext(results))
            while not (await asyncio.wait([waiting], timeout=QUIET_S))[0]:
                if building.done() and building.result() is None and placed >= ordinary and churning is None:
                    print(f"built in {last - began:.1f} s: {placed} allocations; interrupt to end", flush=True)
                    churning = asyncio.create_task(replace_pods(rm, scale, churn) if churn else asyncio.sleep(0))
            _, news = waiting.result()
            if isinstance(news, AllocationResponse):
                placed, last = placed + len(news.new), monotonic()


def main() -> None:
    parser = argparse.ArgumentParser(description="Fill a running system with one large partition.")
    parser.add_argument("--rm", default="tcp://127.0.0.1:9090", help="native port of the system (%(default)s)")
    parser.add_argument("--id", default="big", help="id of the resource manager (%(default)s)")
    parser.add_argument("--queues", type=int, default=Scale().queues)
    parser.add_argument("--nodes", type=int, default=Scale().nodes)
    parser.add_argument("--applications", type=int, default=Scale().applications)
    parser.add_argument("--scale", type=float, default=1.0, help="factor of all three (%(default)s)")
    parser.add_argument("--churn", type=int, default=0, help="pods that end and start each second (%(default)s)")
    given = parser.parse_args()
    scale = Scale(*(int(number * given.scale) for number in (given.queues, given.nodes, given.applications)))
    try:
        asyncio.run(run(given.rm, given.id, scale, given.churn))
    except KeyboardInterrupt:
        print("left")


if __name__ == "__main__":
    main()
