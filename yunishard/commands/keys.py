"""CURVE keys for the native port: create pairs, and define which resource
managers may use a key. A running system reads a changed list at once.

examples:
  yunishard keys new server                  the pair of the port itself
  yunishard keys new rm-1                    one for a resource manager
  yunishard keys allow rm-1.key rm-1         rm-1 may use it
  yunishard keys allow ci.key 'test-*' --comment 'the test cluster'
  yunishard keys list
  yunishard keys revoke rm-1                 rm-1 may use no key any more
  yunishard up --native tcp://0.0.0.0:9090 --native-keys KEYS

KEYS is the directory of the pairs and of the list: that of --dir, or
$XDG_CONFIG_HOME/yunishard, usually ~/.config/yunishard.

exit codes:
  0  done
  1  refused: it exists already, or there is no such key
  2  wrong usage, or a file that cannot be used
"""

# The docstring is the help text. The command works on files, with no running system: a system reads a changed allow-
# list within a second. A list is replaced as a whole or not at all. Lines about other keys, and comments, stay as they
# are.
# Not here: the formats of key files and allow-lists (`common/curve_keys.py`).

import argparse
import fcntl
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from common import curve_keys
from common.names import RmIdError, parse_rm_ids
from yunishard.cli import UNUSABLE, CommandFailed, describe
from yunishard.commands.console import add_actions, config_directory, print_json, show, write

LIST_MODE: Final = 0o644
"""Mode of a new list, which contains no secret."""


def add_keys_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `yunishard keys`."""
    describe(parser, __doc__)
    for name, own in add_actions(parser, {name: about for name, (_, about) in _ACTIONS.items()}).items():
        own.add_argument("--dir", metavar="DIR", type=Path, help="directory of the keys (default: ~/.config/yunishard)")
        if name != "new":
            own.add_argument(
                "--list", metavar="FILE", type=Path, help=f"the list (default: {curve_keys.ALLOWED} in DIR)"
            )
        match name:
            case "new":
                about = f"name of the pair; {curve_keys.SERVER} for the port's own pair"
                own.add_argument("name", metavar="NAME", type=_parse_name, help=about)
            case "list":
                own.add_argument("--json", action="store_true", help="print JSON")
            case "allow":
                own.add_argument("key", metavar="FILE", help="file with the public key, or its 40 characters")
                own.add_argument("rms", metavar="IDS", help="RM ids with commas between, * for any text")
                own.add_argument("--comment", metavar="TEXT", default="", help="a note in the list")
            case "revoke":
                own.add_argument("key", metavar="FILE", help="fingerprint, public key, its file, or an RM id")


def run_keys(args: argparse.Namespace) -> int:
    """Run the action; return the exit status."""
    action, _ = _ACTIONS[args.action]
    try:
        action(args)
    except FileExistsError as error:
        raise CommandFailed(str(error)) from None
    except (curve_keys.AllowListError, RmIdError, curve_keys.KeyFileError) as error:
        raise CommandFailed(str(error), status=UNUSABLE) from None
    return 0


def _new(args: argparse.Namespace) -> None:
    directory = _directory(args)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    public, secret = curve_keys.write_pair(directory, args.name)
    write(f"{public}  public, fingerprint {curve_keys.fingerprint(curve_keys.read_public(public))}")
    write(f"{secret}  secret: only for its owner\n")
    if args.name == curve_keys.SERVER:
        write(f"next: yunishard keys new RM-ID, then yunishard up --native-keys {directory};")
        write(f"give every resource manager a copy of {public.name}")
    else:
        write(f"next: yunishard keys allow {public} RM-ID where the core runs;")
        write(f"the resource manager needs {secret.name}, and {curve_keys.SERVER}.key of the core beside it")


def _list(args: argparse.Namespace) -> None:
    entries = _read(_list_file(args)).entries.values()
    if args.json:
        found = [
            {
                "fingerprint": curve_keys.fingerprint(one.key),
                "publicKey": one.key,
                "rmIds": list(one.rm_ids),
                "comment": one.comment,
                "since": one.since,
            }
            for one in entries
        ]
        print_json(found)
        return
    rows = [
        (curve_keys.fingerprint(one.key), ",".join(one.rm_ids), one.comment or "-", one.since or "-") for one in entries
    ]
    show(("FINGERPRINT", "RM IDS", "COMMENT", "SINCE"), rows)
    if not rows:
        sys.stderr.write(f"{_list_file(args)} allows no key; `yunishard keys allow FILE RM-ID` adds one\n")


def _allow(args: argparse.Namespace) -> None:
    key = args.key if curve_keys.is_key(args.key) else curve_keys.read_public(_key_file(args))
    comment = " ".join(args.comment.split())
    new = curve_keys.AllowedKey(key, parse_rm_ids(args.rms), comment, since=datetime.now(UTC).date().isoformat())
    file = _list_file(args)
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fingerprint = curve_keys.fingerprint(key)
    with _edit(file) as lines:
        before = _read(file).entries.get(key)
        if before is not None:
            rms = ",".join(before.rm_ids)
            raise CommandFailed(f"key {fingerprint} is allowed for {rms} already: revoke it first, or edit {file}")
        lines.append(new.line())
    write(f"{file}: key {fingerprint} is allowed for {','.join(new.rm_ids)}")


def _revoke(args: argparse.Namespace) -> None:
    file = _list_file(args)
    with _edit(file) as lines:
        _read(file)
        key = curve_keys.read_public(_key_file(args)) if _key_file(args).is_file() else args.key
        kept, messages = [], []
        for line in lines:
            entry = curve_keys.parse_allow_line(line)
            rm_ids = None if entry is None else _remaining_rm_ids(entry, key)
            if entry is None or rm_ids == entry.rm_ids:
                kept.append(line)
                continue
            if rm_ids:
                kept.append(replace(entry, rm_ids=rm_ids).line())
            revoked = ",".join(one for one in entry.rm_ids if one not in (rm_ids or ()))
            messages.append(f"{file}: key {curve_keys.fingerprint(entry.key)} is no longer allowed for {revoked}")
        if not messages:
            raise CommandFailed(f"{file} has no key that {args.key!r} stands for (`yunishard keys list` shows all)")
        lines[:] = kept
    write("\n".join(messages))


def _remaining_rm_ids(entry: curve_keys.AllowedKey, revoked: str) -> tuple[str, ...]:
    """Return the RM ids that may still use a key after a key, a fingerprint or an RM id was revoked."""
    if revoked in (entry.key, curve_keys.fingerprint(entry.key)):
        return ()
    return tuple(one for one in entry.rm_ids if one != revoked)


_ACTIONS: Final[dict[str, tuple[Callable[[argparse.Namespace], None], str]]] = {
    "new": (_new, "create a key pair: two files"),
    "list": (_list, "show which keys are allowed, and for which RMs"),
    "allow": (_allow, "allow resource managers to use a key"),
    "revoke": (_revoke, "remove a key from the list, or an RM id"),
}


# Private --------------------------------------------------------------------------------------------------------------


def _directory(args: argparse.Namespace) -> Path:
    return config_directory() if args.dir is None else Path(args.dir)


def _key_file(args: argparse.Namespace) -> Path:
    """Return the named file; if it does not exist here, the one in the directory of the keys."""
    here, there = Path(args.key), _directory(args) / args.key
    return there if there.is_file() and not here.exists() else here


def _list_file(args: argparse.Namespace) -> Path:
    return _directory(args) / curve_keys.ALLOWED if args.list is None else Path(args.list)


def _read_text(file: Path) -> str:
    """Read the allow-list; empty if it does not exist."""
    try:
        with file.open("rb") as opened:
            return opened.read(curve_keys.LIST_BYTES_MAX).decode()
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError:
        raise curve_keys.AllowListError(f"{file}: not UTF-8 text") from None


def _read(file: Path) -> curve_keys.AllowList:
    try:
        return curve_keys.parse_allow_list(_read_text(file))
    except curve_keys.AllowListError as error:
        raise curve_keys.AllowListError(f"{file}: {error}") from None


@contextmanager
def _edit(file: Path) -> Iterator[list[str]]:
    """Lock the list and give its lines; after the block write them back as a whole, unless it raised."""
    file = file.resolve()
    directory = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        lines = _read_text(file).splitlines()
        yield lines
        _replace(file, "".join(f"{line}\n" for line in lines))
        os.fsync(directory)
    finally:
        os.close(directory)


def _replace(file: Path, text: str) -> None:
    mode = file.stat().st_mode & 0o777 if file.exists() else LIST_MODE
    new = file.with_name(f".{file.name}.new")  # the lock of the directory makes it the only one
    try:
        with new.open("w") as written:
            os.fchmod(written.fileno(), mode)
            written.write(text)
            written.flush()
            os.fsync(written.fileno())
        new.replace(file)
    finally:
        new.unlink(missing_ok=True)


def _parse_name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,63}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not made of up to 64 letters, digits and _ . : -")
    return text
