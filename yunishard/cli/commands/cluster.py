"""`yunishard cluster`: the keys of the connections between the hosts of a system.

DIR has a directory for each host, which that host uses as `--cluster-keys`:

    DIR/a/host.key_secret   both keys of host a
    DIR/a/host.key          its public key
    DIR/a/allowed           the public keys of all hosts, with the name of the host of each; may have earlier keys, too

Running processes read changed files within a second, so each command leaves files with which hosts can connect: a new
key is allowed before it is used. A list is replaced as a whole or not at all, and so is a pair.

The docstring of `run_cluster` is the help text. Not here: who reads the files (`broker/cluster_port.py`,
`common/transport/cluster_connection.py`), the keys of the native port (`credentials.py`).
"""

import argparse
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from yunishard.cli.commands.console import add_actions
from yunishard.cli.commands.credentials import edit_list
from yunishard.cli.main import CommandFailed, CommandUnusable
from yunishard.common.process.folders import find_intruder, lock_folder, sync_path
from yunishard.common.process.terminal import write
from yunishard.common.settings import HOST as HOST_NAME
from yunishard.common.transport import curve_keys
from yunishard.common.transport.curve_keys import ALLOWED, HOST, PUBLIC_SUFFIX, AllowedKey, fingerprint, host_file


def add_cluster_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `yunishard cluster`."""
    for name, own in add_actions(parser, {name: about for name, (_, about) in _ACTIONS.items()}).items():
        own.add_argument("dir", metavar="DIR", type=Path, help="directory with the keys of all hosts")
        match name:
            case "init":
                about = "names of the hosts, as in --host-name; hosts that have keys already keep them"
                own.add_argument("hosts", metavar="HOST", nargs="+", type=_parse_host, help=about)
            case "rotate":
                own.add_argument("host", metavar="HOST", type=_parse_host, help="name of the host")


def run_cluster(args: argparse.Namespace) -> int:
    """Keys of the connections between the hosts of a system. Each host has a pair of
    its own, and a list of the keys that are allowed. Hosts that run read changed
    files within a second.

    examples:
      yunishard cluster init keys a b c      keys of three hosts; later, of more
      scp -rp keys/b b:/etc/yunishard/keys   each host gets its own directory
      yunishard up --cluster-keys /etc/yunishard/keys --host-name b ...
      yunishard cluster rotate keys b        a new pair; the old key stays allowed
      yunishard cluster prune keys           only the present keys stay allowed

    Keep DIR where no host is. After `rotate` and `init` copy the lists (keys/*/allowed)
    to all hosts before you copy the new pair to its host; after `prune` copy the
    lists. Remove a host with `rm -r keys/b` and `yunishard cluster prune keys`.

    exit codes:
      0  done
      1  refused: there is no such host
      2  wrong usage, or a file that cannot be used
    """
    action, _ = _ACTIONS[args.action]
    for folder in (args.dir, *(args.dir / host for host in getattr(args, "hosts", ()))):
        if problem := find_intruder(folder):
            raise CommandUnusable(f"{problem}; or choose another directory for the keys")
    try:
        action(args)
    except (ValueError, curve_keys.KeyFileError) as error:
        raise CommandUnusable(str(error)) from None
    return 0


def _create_hosts(args: argparse.Namespace) -> None:
    args.dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    with lock_folder(args.dir):
        for host in args.hosts:
            folder = args.dir / host
            folder.mkdir(mode=0o700, exist_ok=True)
            if not (folder / f"{HOST}{PUBLIC_SUFFIX}").exists():
                curve_keys.write_pair(folder, HOST)
                write(f"{folder}: new key {fingerprint(_public(folder))}")
        _allow_present(args.dir)
    write(f"\nnext: copy each directory to its host, and start that with --cluster-keys; {ALLOWED} goes first to the")
    write("hosts that run already")


def _rotate(args: argparse.Namespace) -> None:
    folder = args.dir / args.host
    if folder not in _folders(args.dir):
        raise CommandFailed(f"{folder} has no keys: `yunishard cluster init {args.dir} {args.host}` makes them")
    with lock_folder(args.dir), tempfile.TemporaryDirectory(dir=args.dir, prefix=".") as new:
        _allow_present(args.dir)
        public, secret = curve_keys.write_pair(Path(new), HOST)
        _allow(args.dir, {curve_keys.read_public(public): args.host})
        secret.replace(host_file(folder))
        public.replace(folder / public.name)
        sync_path(folder)
    write(f"{folder}: new key {fingerprint(_public(folder))}; the earlier one stays allowed")
    write(f"\nnext: copy {ALLOWED} to all hosts, then {folder} to {args.host}; once the host is connected,")
    write(f"`yunishard cluster prune {args.dir}`")


def _prune(args: argparse.Namespace) -> None:
    with lock_folder(args.dir):
        _allow_present(args.dir)
        present = _present(args.dir)
        if not present:
            raise CommandFailed(f"{args.dir} has no hosts: `yunishard cluster init` creates their keys")
        for folder in _folders(args.dir):
            with edit_list(folder / ALLOWED) as (lines, allowed):
                gone = allowed.keys() - present.keys()
                lines[:] = [line for line in lines if not _is_of(line, gone)]
            for key in sorted(gone):
                write(f"{folder / ALLOWED}: key {fingerprint(key)} of {allowed[key].rm_ids[0]} is no longer allowed")
    write(f"\nnext: copy {ALLOWED} to all hosts")


_ACTIONS: Final[dict[str, tuple[Callable[[argparse.Namespace], None], str]]] = {
    "init": (_create_hosts, "create the keys of hosts"),
    "rotate": (_rotate, "give a host a new pair of keys"),
    "prune": (_prune, "allow only the present keys of all hosts"),
}


def _folders(place: Path) -> list[Path]:
    """Return the directories of all hosts."""
    found = sorted(file.parent for file in place.glob(f"*/{HOST}{PUBLIC_SUFFIX}"))
    return [folder for folder in found if not folder.name.startswith(".")]


def _public(folder: Path) -> str:
    return curve_keys.read_public(folder / f"{HOST}{PUBLIC_SUFFIX}")


def _present(place: Path) -> dict[str, str]:
    """Return the present public key of each host, with the host's name."""
    return {_public(folder): folder.name for folder in _folders(place)}


def _allow_present(place: Path) -> None:
    _allow(place, _present(place))


def _allow(place: Path, keys: dict[str, str]) -> None:
    """Allow these keys at all hosts."""
    today = datetime.now(UTC).date().isoformat()
    for folder in _folders(place):
        with edit_list(folder / ALLOWED) as (lines, allowed):
            lines += [AllowedKey(key, (host,), since=today).line() for key, host in keys.items() if key not in allowed]


def _is_of(line: str, keys: set[str]) -> bool:
    """Whether this line allows one of these keys."""
    entry = curve_keys.parse_allow_line(line)
    return entry is not None and entry.key in keys


def _parse_host(text: str) -> str:
    try:
        HOST_NAME.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text
