"""`yunishard hosts`: list the hosts of a cluster, drain or remove one, and spread partitions evenly, over the REST API.

Not here: which host a partition gets (`broker/placement.py`), other requests to a running system (`administration.py`).
"""

import argparse
import time
from collections.abc import Callable
from http.client import SERVICE_UNAVAILABLE
from typing import Final

from msgspec.structs import asdict

from yunishard.cli.commands.console import add_actions
from yunishard.cli.commands.display import Screen
from yunishard.cli.commands.listing import Frame, draw_rows
from yunishard.cli.commands.partition_tables import make_columns
from yunishard.cli.commands.rest import Answer, RequestFailed, Rest, add_rest
from yunishard.cli.main import CommandFailed
from yunishard.common.process.terminal import write, write_text
from yunishard.common.rest.catalogue import HOSTS
from yunishard.common.rest.records import HostsView, HostView
from yunishard.common.text_formats import format_count, parse_duration

POLL_S: Final = 1.0
"""Seconds between two looks at the progress."""

WAIT_DEFAULT: Final = "15m"

ACTIONS: Final = {
    "list": "list the hosts with their state and their partitions",
    "drain": "move all partitions of a host to others, and give it no more",
    "undrain": "let a host get partitions again",
    "remove": "discard a lost host, which was stopped permanently or does not return",
    "rebalance": "spread the partitions evenly over the hosts",
}


def add_hosts_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `yunishard hosts`."""
    for name, own in add_actions(parser, ACTIONS).items():
        if name in ("drain", "undrain", "remove"):
            own.add_argument("host", metavar="HOST", help="the name of the host")
        if name in ("drain", "rebalance"):
            own.add_argument("--wait", action="store_true", help="wait until the partitions have moved")
            about = f"how long to wait, as in 90s (default: {WAIT_DEFAULT})"
            own.add_argument("--timeout", metavar="TIME", type=_parse_timeout, default=WAIT_DEFAULT, help=about)
        add_rest(own)


def run_hosts(args: argparse.Namespace) -> int:
    """List the hosts of a cluster, move all partitions off one before it is stopped
    or upgraded, or spread the partitions evenly. Each partition pauses for about
    as long as its worker needs to recover. Requires the role of scheduler
    administrator.

    examples:
      yunishard hosts list
      yunishard hosts drain a --wait           until host a is empty
      yunishard hosts undrain a                it may get partitions again
      yunishard hosts remove a                 it was stopped permanently
      yunishard hosts rebalance --wait --json

    exit codes:
      0  done; without --wait, begun
      1  refused, with the reason, or not done in time: the partitions continue
         to move
      2  wrong usage, or the system does not answer
    """
    rest = Rest.from_arguments(args)
    match args.action:
        case "list":
            answer = rest.get("hosts")
        case "drain" if args.wait:
            _change(rest, args.host, "drain")
            answer = _wait(rest, args, lambda view: _progress(_find(view, args.host)))
        case "rebalance" if args.wait:
            _change(rest, "rebalance")
            answer = _wait(rest, args, _rebalancing)
        case "rebalance":
            answer = _change(rest, "rebalance")
        case action:
            answer = _change(rest, args.host, action)
    if args.json:
        return answer.print()
    _print_hosts(answer.decode(HostsView))
    return 0


def _parse_timeout(text: str) -> float:
    found = parse_duration(text)
    if found is None or found <= 0:
        raise argparse.ArgumentTypeError(f"expected a time such as {WAIT_DEFAULT}, got {text[:32]!r}")
    return found


def _change(rest: Rest, *path: str) -> Answer:
    return rest.send("POST", "hosts", *path)


def _find(view: HostsView, name: str) -> HostView:
    found = next((one for one in view.hosts if one.name == name), None)
    if found is None:
        raise CommandFailed(f"host {name} is not known any more")
    return found


def _progress(host: HostView) -> str:
    """The partitions that are left on a draining host; empty once there are none."""
    if not host.draining:
        raise CommandFailed(f"host {host.name} is not draining any more: it was undrained meanwhile")
    return f"host {host.name} has {format_count(host.partitions, 'partition')}" if host.partitions else ""


def _rebalancing(view: HostsView) -> str:
    """How many partitions move; empty once all have."""
    if not view.rebalancing:
        return ""
    return f"{format_count(sum(one.leaving for one in view.hosts), 'partition')} in motion"


def _wait(rest: Rest, args: argparse.Namespace, describe: Callable[[HostsView], str]) -> Answer:
    """Wait until nothing is left to describe; print each change of it."""
    until, shown = time.monotonic() + args.timeout, ""
    while True:
        try:
            answer = rest.get("hosts")
            remaining = describe(answer.decode(HostsView))
        except RequestFailed as failed:
            if failed.code != SERVICE_UNAVAILABLE:  # else another broker may be about to lead
                raise
            remaining = str(failed)
        if not remaining:
            return answer
        if time.monotonic() >= until:
            raise CommandFailed(f"not done in time: {remaining}; `yunishard hosts list` shows the progress")
        if remaining != shown and not args.json:
            write(remaining)
        shown = remaining
        time.sleep(POLL_S)


def _print_hosts(view: HostsView) -> None:
    frame = Frame(Screen.detect(), time.time_ns())
    write_text("\n".join(draw_rows(make_columns(HOSTS), list(map(asdict, view.hosts)), frame)))
    for one in view.hosts:
        if one.refused:
            write(f"another machine was refused as host {one.name}: {one.refused}")
    if view.rebalancing:
        write("partitions move until they are spread evenly")
