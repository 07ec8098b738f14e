"""`yunishard fake-rm`: connect, send what is due, receive the results, until a signal or the end of the time.

The docstring of `run_fake_rm` is the help text. Not here: decisions about applications (`machine.py`), the fake RM that
`yunishard up --simulated-nodes` starts (`service.py`).
"""

import argparse
import asyncio
from collections.abc import Callable
from typing import Final

from yunishard.cli.main import CommandFailed, CommandUnusable, add_core_options, check_by, parse_whole
from yunishard.common.messages.wire import NEVER
from yunishard.common.simulated_nodes import NODE_RESOURCES, NODES_MAX, name_simulated_nodes, parse_node_resources
from yunishard.common.text_formats import format_count, parse_duration
from yunishard.sdk.client import ResourceManager, connect, split_addresses
from yunishard.sdk.exceptions import KeyFileError, RegistrationRefused, SessionLost
from yunishard.workloads.fake_rm import workload
from yunishard.workloads.fake_rm.machine import FakeNodes, FakeRM
from yunishard.workloads.fake_rm.workload import Workload, build_configuration, find_rate
from yunishard.workloads.replay.run import cancel_at_signal, parse_rm_id, send_batch
from yunishard.workloads.replay.user_queues import UserQueues, read_user_queues

RM_ID_DEFAULT: Final = "fake"
NODES_DEFAULT: Final = 20
LOAD_DEFAULT: Final = 80
LOAD_MAX: Final = 1000
SEED_MAX: Final = 2**31 - 1

TICK_S: Final = 0.02
"""Interval at which updates are sent at most."""

LOOK_S: Final = 1.0
"""Longest pause in which nothing is due or received; and the least time between two refusals that are shown."""

LINE_EVERY_S: Final = 10.0
CONNECT_S_MAX: Final = 30.0


def add_fake_rm_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `yunishard fake-rm`."""
    add = parser.add_argument
    about = f"nodes of each partition (default: {NODES_DEFAULT})"
    add("--nodes", type=parse_whole(1, NODES_MAX), default=NODES_DEFAULT, metavar="N", help=about)
    about = f"size of a node (default: {NODE_RESOURCES})"
    add(
        "--node-resources", type=check_by(parse_node_resources), default=NODE_RESOURCES, metavar="RESOURCES", help=about
    )
    about = (
        f"percentage of the nodes that applications keep busy on average; 0 for none (default: {LOAD_DEFAULT}). "
        "Above 100 the queues fill"
    )
    add("--load", type=parse_whole(0, LOAD_MAX), default=LOAD_DEFAULT, metavar="PERCENT", help=about)
    about = "applications a minute, in place of --load"
    add("--rate", type=_parse_rate, metavar="N", help=about)
    about = f"mean run time of a task (default: {workload.RUN_S:g}s)"
    add("--run-time", type=_parse_time, default=workload.RUN_S, metavar="DURATION", help=about)
    about = f"percentage of applications that are gangs (default: {workload.GANG_SHARE * 100:g})"
    add("--gangs", type=parse_whole(0, 100), default=round(workload.GANG_SHARE * 100), metavar="PERCENT", help=about)
    add("--seed", type=parse_whole(0, SEED_MAX), default=0, metavar="N", help="of the random applications (default: 0)")
    about = (
        "queues.yaml with your own partitions and queues; - for standard input (default: queues that show something)"
    )
    add("--config", metavar="FILE", help=about)
    about = "end after this time (default: at Ctrl-C)"
    add("--duration", type=_parse_time, default=NEVER, metavar="DURATION", help=about)
    add("--rm-id", type=parse_rm_id, default=RM_ID_DEFAULT, metavar="ID", help=f"(default: {RM_ID_DEFAULT})")
    add_core_options(parser, split_addresses)


def run_fake_rm(args: argparse.Namespace) -> int:
    """Connect a fake resource manager (RM) to a running system: it has simulated
    nodes, submits random applications, lets them run for their time, confirms
    preemptions, replaces placeholders of gangs, and reports everything again
    after a failure. Dashboard, `top` and `explain` have something to show.

    Applications arrive at random times (a Poisson process); the same --seed gives
    the same applications. Each has up to 8 tasks, each a part of a node. They are
    spread over all leaf queues; a queue has at most 50 of them, or as many as a large
    cluster needs, and further ones are held back. At its end, the fake RM leaves: its partitions end.

    examples:
      yunishard fake-rm                           20 nodes, 80 % busy
      yunishard fake-rm --nodes 100 --load 120    more than fits: queues grow
      yunishard fake-rm --config queues.yaml      your queues
      yunishard fake-rm --load 0                  only nodes
      yunishard fake-rm --node-resources vcore=64,memory=256Gi,nvidia.com/gpu=8

    exit codes:
      0  stopped by Ctrl-C or SIGTERM, or at the end of --duration
      1  the session was lost: another RM registered with this id, for example
      2  wrong usage, or the file or the core cannot be used
    """
    fake, config = build_fake_rm(args)
    return asyncio.run(connect_and_play(args, config, fake))


def build_fake_rm(args: argparse.Namespace) -> tuple[FakeRM, str]:
    """Return the RM that the options describe, and its configuration.

    Raises:
        CommandUnusable: the file of the queues cannot be used.
    """
    resources = parse_node_resources(args.node_resources)
    if args.config is None:
        queues = UserQueues(build_configuration(args.nodes, resources))
    else:
        queues = read_user_queues(args.config)
    names = tuple(name_simulated_nodes(args.nodes, "fake"))
    rate = args.rate or find_rate(args.nodes * len(queues.names), args.load / 100, args.run_time)
    drawn = Workload(
        queues.targets, resources, rate=rate, run_s=args.run_time, gang_share=args.gangs / 100, seed=args.seed
    )
    nodes = FakeNodes(partitions=queues.names, names=names, resources=resources)
    return FakeRM(nodes, drawn, rm_id=args.rm_id), queues.text


async def connect_and_play(args: argparse.Namespace, config: str, fake: FakeRM) -> int:
    """Connect, and play until a signal or the end of the time; return the exit status. A session that the core drops,
    because it has restarted without its state, for example, is followed by another one.
    """
    end_at = asyncio.get_running_loop().time() + args.duration
    with cancel_at_signal():
        try:
            while not await _play_session(args, config, fake, end_at):
                fake.begin_session()
        except SessionLost as error:
            raise CommandFailed(str(error)) from None
        except (RegistrationRefused, KeyFileError, ConnectionError, TimeoutError) as error:
            raise CommandUnusable(str(error)) from None
        except asyncio.CancelledError:  # interrupted before it was connected
            return 0
    _write(describe(fake))
    return 0


async def _play_session(args: argparse.Namespace, config: str, fake: FakeRM, end_at: float) -> bool:
    """Play one session; return whether it ended in order.

    Raises:
        SessionLost: another RM has registered with this id.
    """
    try:
        async with connect(
            args.address, rm_id=args.rm_id, config=config, keys=args.keys, timeout_s=CONNECT_S_MAX
        ) as rm:
            _write(f"connected to {rm.address} as RM {rm.rm_id}, partitions: {', '.join(rm.partitions)}")
            nodes = f"{format_count(args.nodes, 'node')} of {args.node_resources}"
            _write(f"{nodes}, about {fake.rate:.3g} applications a minute. Ctrl-C ends all this.")
            await play(rm, fake, show=_write, end_at=end_at)
    except SessionLost as error:
        if error.code == "superseded":
            raise
        _write(str(error))
        return False
    return True


async def play(rm: ResourceManager, fake: FakeRM, *, show: Callable[[str], None], end_at: float = NEVER) -> None:
    """Play the fake RM until this task is cancelled, which ends it in order, or until a time of the event loop.

    `show` gets a line about the progress from time to time, and each new kind of refusal.

    Raises:
        SessionLost: the core has ended the session.
    """
    loop, news = asyncio.get_running_loop(), asyncio.Event()
    shown = loop.time()

    async def receive() -> None:
        async for partition, result in rm.results():
            fake.receive(partition, result, loop.time())
            news.set()

    receiver = asyncio.create_task(receive())
    receiver.add_done_callback(lambda _: news.set())
    try:
        while loop.time() < end_at and not receiver.done():
            news.clear()
            for problem in await send_batch(rm, fake.due(loop.time())):
                show(problem)
            if loop.time() >= shown + (LOOK_S if fake.problem else LINE_EVERY_S):
                show(fake.problem or describe(fake))
                fake.problem, shown = "", loop.time()
            await asyncio.sleep(TICK_S)
            due_s = min(LOOK_S, fake.deadline - loop.time(), end_at - loop.time())
            if due_s > 0:
                try:
                    async with asyncio.timeout(due_s):
                        await news.wait()
                except TimeoutError:
                    pass
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None:
            task.uncancel()  # the caller leaves the core
    finally:
        if not receiver.done():
            receiver.cancel()
        (ending,) = await asyncio.gather(receiver, return_exceptions=True)
    if isinstance(ending, Exception):
        raise ending


def describe(fake: FakeRM) -> str:
    """Describe the present state and what happened, in one line."""
    tasks, counts = fake.tasks_by_state, fake.counts
    now = f"{format_count(fake.applications_open, 'application')}: {tasks['running']:,} tasks running"
    parts = [f"{now}, {tasks['waiting']:,} waiting; {counts.submitted:,} submitted, {counts.completed:,} completed"]
    for number, what in (
        (counts.rejected, "rejected"),
        (counts.ended_by_core, "ended by the core"),
        (counts.held_back, "held back, as their queue was full"),
        (counts.preempted, "tasks preempted"),
    ):
        if number:
            parts.append(f"{number:,} {what}")
    return ", ".join(parts)


def _write(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - this is the output


# Options --------------------------------------------------------------------------------------------------------------

_RATE_MIN: Final = 0.01


def _parse_rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not _RATE_MIN <= rate <= workload.RATE_MAX:
        raise argparse.ArgumentTypeError(
            f"expected applications a minute from {_RATE_MIN:g} to {workload.RATE_MAX:g}, got {text[:32]!r}"
        )
    return rate


def _parse_time(text: str) -> float:
    found = parse_duration(text)
    if found is None or found <= 0:
        raise argparse.ArgumentTypeError(f"expected a duration such as 500ms, 15s or 1m30s, got {text[:32]!r}")
    return found
