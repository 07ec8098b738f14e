"""`yunishard keys`: make key pairs, and say which key may speak for which resource managers.

Works on files alone, with no running system: a system that uses the list looks at it every second. A list is replaced
as a whole or not at all, and what is not about the key in question stays as it is, comments too.

Not here: what key files and lists look like (`common/curve_keys.py`, `common/curve_keys.py`).
"""

import argparse
import fcntl
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from common.curve_keys import (
    ALLOWED,
    LIST_BYTES_MAX,
    SERVER,
    AllowedKey,
    AllowList,
    AllowListError,
    KeyFileError,
    fingerprint,
    is_key,
    parse_allow_line,
    parse_allow_list,
    read_public,
    write_pair,
)
from common.names import RmIdError, parse_rm_ids
from yunishard.commands.console import REFUSED, UNUSABLE, print_json, show

ABOUT: Final = """\
CURVE keys for the native port: make pairs, and say which key may speak for
which resource managers. A running system takes a changed list at once."""

MORE: Final = """\
examples:
  yunishard keys new server                  the pair of the port itself
  yunishard keys new rm-1                    one for a resource manager
  yunishard keys allow rm-1.key rm-1         it may speak for rm-1
  yunishard keys allow ci.key 'test-*' --comment 'the test cluster'
  yunishard keys list
  yunishard keys revoke rm-1                 no key may speak for it any more
  yunishard up --native tcp://0.0.0.0:9090 --native-keys KEYS

KEYS is the directory of the pairs and of the list: $XDG_CONFIG_HOME/yunishard,
usually ~/.config/yunishard, unless --dir says otherwise.

exit codes:
  0  done
  1  refused: it is there already, or there is no such key
  2  wrong usage, or a file that cannot be used"""

LIST_MODE: Final = 0o644
"""Of a new list; there is nothing secret in it."""

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,63}")


class Refused(Exception):
    """It cannot be done as things are; the text says why."""


def add_keys_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description, parser.epilog = ABOUT, MORE
    actions = parser.add_subparsers(title="actions", dest="action", metavar="ACTION", required=True)
    for name, (_, about) in _ACTIONS.items():
        own = actions.add_parser(name, help=about, description=about, allow_abbrev=False)
        own.add_argument("--dir", metavar="DIR", type=Path, help="the keys are here (default: ~/.config/yunishard)")
        if name != "new":
            own.add_argument("--list", metavar="FILE", type=Path, help=f"the list (default: {ALLOWED} in DIR)")
        match name:
            case "new":
                called = f"what to call it; the port's own pair is called {SERVER}"
                own.add_argument("name", metavar="NAME", type=_name, help=called)
            case "list":
                own.add_argument("--json", action="store_true", help="print JSON")
            case "allow":
                own.add_argument("key", metavar="FILE", help="file with the public key, or its 40 characters")
                own.add_argument("rms", metavar="IDS", help="RM ids with commas between, * for any text")
                own.add_argument("--comment", metavar="TEXT", default="", help="for people")
            case "revoke":
                own.add_argument("key", metavar="FILE", help="fingerprint, public key, its file, or an RM id")


def run_keys(args: argparse.Namespace) -> int:
    """Do it; the exit status."""
    action, _ = _ACTIONS[args.action]
    try:
        action(args)
    except (Refused, FileExistsError) as error:
        return _failed(args.action, str(error), REFUSED)
    except (AllowListError, RmIdError, KeyFileError) as error:
        return _failed(args.action, str(error), UNUSABLE)
    except OSError as error:
        if error.filename is None:
            raise  # standard output, which is not our business
        return _failed(args.action, f"{error.filename}: {(error.strerror or str(error)).lower()}", UNUSABLE)
    return 0


# Actions --------------------------------------------------------------------------------------------------------------


def _new(args: argparse.Namespace) -> None:
    folder = _folder(args)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    public, secret = write_pair(folder, args.name)
    _say(f"{public}  public, fingerprint {fingerprint(read_public(public))}")
    _say(f"{secret}  secret: only for who uses it")
    _say("")
    if args.name == SERVER:
        _say(f"next: yunishard keys new RM-ID, then yunishard up --native-keys {folder};")
        _say(f"give every resource manager a copy of {public.name}")
    else:
        _say(f"next: yunishard keys allow {public} RM-ID where the core runs;")
        _say(f"the resource manager needs {secret.name}, and {SERVER}.key of the core beside it")


def _list(args: argparse.Namespace) -> None:
    entries = _read(_list_file(args)).entries.values()
    if args.json:
        found = [
            {
                "fingerprint": fingerprint(one.key),
                "publicKey": one.key,
                "rmIds": list(one.rm_ids),
                "comment": one.comment,
                "since": one.since,
            }
            for one in entries
        ]
        print_json(found)
        return
    rows = [(fingerprint(one.key), ",".join(one.rm_ids), one.comment or "-", one.since or "-") for one in entries]
    show(("FINGERPRINT", "RM IDS", "COMMENT", "SINCE"), rows)
    if not rows:
        sys.stderr.write(f"no key is allowed by {_list_file(args)}; `yunishard keys allow FILE RM-ID` lets one in\n")


def _allow(args: argparse.Namespace) -> None:
    key = args.key if is_key(args.key) else read_public(_key_file(args))
    comment = " ".join(args.comment.split())
    new = AllowedKey(key, parse_rm_ids(args.rms), comment, since=datetime.now(UTC).date().isoformat())
    file = _list_file(args)
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _changing(file) as lines:
        before = _read(file).entries.get(key)
        if before is not None:
            whom = ",".join(before.rm_ids)
            raise Refused(f"key {fingerprint(key)} may speak for {whom} already: revoke it first, or edit {file}")
        lines.append(new.line())
    _say(f"key {fingerprint(key)} may speak for {','.join(new.rm_ids)} now, says {file}")


def _revoke(args: argparse.Namespace) -> None:
    file = _list_file(args)
    with _changing(file) as lines:
        _read(file)
        key = read_public(_key_file(args)) if _key_file(args).is_file() else args.key
        kept, told = [], []
        for line in lines:
            entry = parse_allow_line(line)
            left = None if entry is None else _left(entry, key)
            if entry is None or left == entry.rm_ids:
                kept.append(line)
                continue
            if left:
                kept.append(replace(entry, rm_ids=left).line())
            lost = ",".join(one for one in entry.rm_ids if one not in (left or ()))
            told.append(f"key {fingerprint(entry.key)} may not speak for {lost} any more, says {file}")
        if not told:
            raise Refused(f"{file} has no key that {args.key!r} stands for (`yunishard keys list` shows all)")
        lines[:] = kept
    _say("\n".join(told))


def _left(entry: AllowedKey, revoked: str) -> tuple[str, ...]:
    """Whom a key may still speak for when itself, its fingerprint, or an RM id as it stands in the list is revoked."""
    if revoked in (entry.key, fingerprint(entry.key)):
        return ()
    return tuple(one for one in entry.rm_ids if one != revoked)


_ACTIONS: Final[dict[str, tuple[Callable[[argparse.Namespace], None], str]]] = {
    "new": (_new, "make a key pair: two files"),
    "list": (_list, "show which keys are allowed, and for whom"),
    "allow": (_allow, "let a key speak for resource managers"),
    "revoke": (_revoke, "take a key off the list, or an RM id"),
}


# Private --------------------------------------------------------------------------------------------------------------


def _folder(args: argparse.Namespace) -> Path:
    if args.dir is not None:
        return Path(args.dir)
    home = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    return (home if home.is_absolute() else Path.home() / ".config") / "yunishard"


def _key_file(args: argparse.Namespace) -> Path:
    """The file that is named; one that is not here may be where the keys are."""
    here, there = Path(args.key), _folder(args) / args.key
    return there if there.is_file() and not here.exists() else here


def _list_file(args: argparse.Namespace) -> Path:
    return Path(args.list) if args.list is not None else _folder(args) / ALLOWED


def _text_of(file: Path) -> str:
    """What the list says; nothing, if there is none."""
    try:
        with file.open("rb") as opened:
            return opened.read(LIST_BYTES_MAX).decode()
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError:
        raise AllowListError(f"{file}: not UTF-8 text") from None


def _read(file: Path) -> AllowList:
    try:
        return parse_allow_list(_text_of(file))
    except AllowListError as error:
        raise AllowListError(f"{file}: {error}") from None


@contextmanager
def _changing(file: Path) -> Iterator[list[str]]:
    """The lines of the list, to change them; written back as a whole at the end, unless something is raised.

    Two who do so at once do it one after the other.
    """
    file = file.resolve()
    folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        lines = _text_of(file).splitlines()
        yield lines
        _replace(file, "".join(f"{line}\n" for line in lines))
        os.fsync(folder)
    finally:
        os.close(folder)


def _replace(file: Path, text: str) -> None:
    mode = file.stat().st_mode & 0o777 if file.exists() else LIST_MODE
    with tempfile.NamedTemporaryFile("w", dir=file.parent, prefix=f".{file.name}-", delete=False) as written:
        try:
            os.fchmod(written.fileno(), mode)
            written.write(text)
            written.flush()
            os.fsync(written.fileno())
            os.replace(written.name, file)
        except OSError:
            Path(written.name).unlink()
            raise


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not made of up to 64 letters, digits and _ . : -")
    return text


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")


def _failed(action: str, text: str, status: int) -> int:
    sys.stderr.write(f"yunishard keys {action}: {text}\n")
    return status
