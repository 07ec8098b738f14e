"""`yunishard config`: show, change, compare and roll back the configuration of a resource manager, over REST.

A change carries the checksum of the configuration that it replaces (If-Match), so that concurrent changes do not
overwrite each other.

Not here: HTTP (`rest.py`), checking a file without a running system (`validate.py`).
"""

import argparse
import difflib
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import pairwise
from typing import Final

import msgspec

from common.config.difference import Difference, find_differences
from common.config.model import Configuration
from common.config.parse import is_null
from common.config.problems import ConfigError
from common.config.validation import load
from common.config.yaml_nodes import TEXT_BYTES_MAX, Mapping, Scalar, compose
from yunishard.commands.console import STDIN, UNUSABLE, print_json, read_bounded, show
from yunishard.commands.rest import NOT_FOUND, Answer, Failed, Rest, add_rest

ABOUT: Final = """\
Show and change the queues of a resource manager while the system runs. A
change reaches all its partitions or none."""

MORE: Final = """\
N: the number of a version, as `history` shows it.

examples:
  yunishard config get > queues.yaml       the text in force
  yunishard config get 3                   that of version 3
  yunishard config put queues.yaml         run this instead; what is probably
                                           not meant is printed as a warning
  yunishard config history
  yunishard config diff                    what the last change was
  yunishard config diff current queues.yaml
  yunishard config diff --summary 3        what has changed since, by queue
  yunishard config rollback 3              as version 3 was, as a new version

exit codes:
  0  done; of diff: no difference
  1  refused, with the reason; of diff: they differ
  2  wrong usage, a file that cannot be read, or nothing answers"""

CURRENT: Final = "current"
SHOWN_CHECKSUM: Final = 12
"""Characters of a checksum in tables."""

SIDE: Final = "current|N|FILE"
"""What can be compared."""


def add_config_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description, parser.epilog = ABOUT, MORE
    actions = parser.add_subparsers(title="actions", dest="action", metavar="ACTION", required=True)
    for name, (_, about) in _ACTIONS.items():
        own = actions.add_parser(name, help=about, description=about, allow_abbrev=False)
        own.add_argument("--rm", metavar="ID", default="", help="the resource manager (default: the only one)")
        add_rest(own)
        match name:
            case "get":
                own.add_argument("version", metavar="N", nargs="?", type=_number, help="(default: the one in force)")
            case "put":
                own.add_argument("file", metavar="FILE", help=f"the queues.yaml; {STDIN} for standard input")
                _add_if_match(own, "that in the file's key `checksum`, or else what is in force now")
                _add_force(own)
            case "rollback":
                own.add_argument("version", metavar="N", type=_number, help="number of the version")
                _add_if_match(own, "what is in force now")
                _add_force(own)
            case "diff":
                own.add_argument("a", metavar=SIDE, nargs="?", default="", help="(default: the version before that)")
                own.add_argument("b", metavar=SIDE, nargs="?", default=CURRENT, help=f"(default: {CURRENT})")
                own.add_argument("--summary", action="store_true", help="one line for each change, in words")


def _add_if_match(parser: argparse.ArgumentParser, default: str) -> None:
    about = f"change nothing unless this is in force, its first 8 digits or more, * for anything (default: {default})"
    parser.add_argument("--if-match", metavar="CHECKSUM", default="", help=about)


def _add_force(parser: argparse.ArgumentParser) -> None:
    about = "overwrite the watched file even if it has an edit that is not in force; the edit is kept in FILE.previous"
    parser.add_argument("--force", action="store_true", help=about)


def _number(text: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,8}", text):
        raise argparse.ArgumentTypeError(f"expected the number of a version, got {text!r}")
    return int(text)


class NobodyThere(Failed):
    """No resource manager is registered."""


def run_config(args: argparse.Namespace) -> int:
    """Do it; the exit status."""
    act, _ = _ACTIONS[args.action]
    try:
        rest = Rest(args.rest, args.ca, args.token_file)
        try:
            rm = args.rm or _only_rm(rest)
        except NobodyThere as nobody:
            if args.action != "get" or args.version:
                raise
            return _get_default(args, rest, nobody)
        return act(args, rest, rm)
    except Failed as failed:
        if args.json and failed.problems:
            print_json({"problems": failed.problems})
            return failed.status
        for problem in failed.problems:
            sys.stderr.write(_line_of(getattr(args, "file", ""), problem) + "\n")
        if not failed.problems:
            sys.stderr.write(f"yunishard config {args.action}: {failed}\n")
        return failed.status


def _only_rm(rest: Rest) -> str:
    """The resource manager that is meant when none is named."""
    ids = rest.rm_ids()
    if len(ids) == 1:
        return ids[0]
    if not ids:
        raise NobodyThere(
            "no resource manager is registered now: start one, or name one that was here before with --rm ID"
            " to see its `history` or a version of it (`get N`)"
        )
    raise Failed(f"several resource managers are registered, say which with --rm: {', '.join(ids)}")


# The actions ----------------------------------------------------------------------------------------------------------


def _get(args: argparse.Namespace, rest: Rest, rm: str) -> int:
    answer = _version(rest, rm, str(args.version)) if args.version else _current(rest, rm)
    if args.json:
        found = {"rm": rm, "checksum": answer.tag, "config": answer.text}
        print_json(found)
    else:
        sys.stdout.write(answer.text)
    return 0


def _get_default(args: argparse.Namespace, rest: Rest, nobody: Failed) -> int:
    """What the first resource manager will get that sends no configuration, as none is registered yet."""
    try:
        answer = rest.get("config", "default")
    except Failed as failed:
        raise (nobody if failed.code == NOT_FOUND else failed) from None  # of an earlier release, which cannot say
    if args.json:
        found = {"rm": "", "checksum": answer.tag, "config": answer.text}
        print_json(found)
        return 0
    sys.stdout.write(answer.text)
    sys.stderr.write(
        "yunishard config get: no resource manager is registered now (name one that was here before with --rm ID); "
        "this is what one gets that sends no configuration\n"
    )
    return 0


def _put(args: argparse.Namespace, rest: Rest, rm: str) -> int:
    text = _read(args.file)
    in_force = _current(rest, rm).tag
    if_match = required(option=args.if_match, text=text, in_force=in_force)
    answer = rest.change("PUT", "config", body=text.encode(), if_match=if_match, query=_query(args, rm))
    return _changed(args, rm, answer, before=in_force)


def _query(args: argparse.Namespace, rm: str) -> dict[str, str]:
    return {"rm": rm, "force": "true" if args.force else ""}


def _rollback(args: argparse.Namespace, rest: Rest, rm: str) -> int:
    in_force = _current(rest, rm).tag
    if_match = required(option=args.if_match, text="", in_force=in_force)
    query = {**_query(args, rm), "version": str(args.version)}
    try:
        answer = rest.change("POST", "config", "rollback", if_match=if_match, query=query)
    except Failed as failed:
        raise _with_versions(failed, rm) from None
    return _changed(args, rm, answer, before=in_force)


def _current(rest: Rest, rm: str) -> Answer:
    """What is in force. A change starts from it: whoever changes it at the same moment, one of the two hears so."""
    try:
        return rest.get("config", rm=rm)
    except Failed as failed:
        raise _with_others(failed, rest, rm, f"; what it ran before: `yunishard config history --rm {rm}`") from None


def _version(rest: Rest, rm: str, number: str) -> Answer:
    try:
        return rest.get("config", "version", number, rm=rm)
    except Failed as failed:
        raise _with_versions(failed, rm) from None


def _with_versions(failed: Failed, rm: str) -> Failed:
    """A failure that may come from a version that is not kept, with where to find those that are."""
    hint = f": `yunishard config history --rm {rm}` lists those that are kept" if failed.code == NOT_FOUND else ""
    return failed.with_hint(hint)


def _with_others(failed: Failed, rest: Rest, rm: str, more: str = "") -> Failed:
    """A failure that may come from a wrong name, with the right ones."""
    if failed.code != NOT_FOUND:
        return failed
    ids = rest.rm_ids()
    return failed if rm in ids else failed.with_hint(f" (there are {', '.join(ids) or 'none'}){more}")


def _changed(args: argparse.Namespace, rm: str, answer: Answer, *, before: str) -> int:
    if args.json:
        sys.stdout.write(answer.text)
        return 0
    told = answer.as_object()
    warnings = told.get("warnings")
    for warning in warnings if isinstance(warnings, list) else []:
        sys.stderr.write(_line_of(getattr(args, "file", ""), warning, "warning: ") + "\n")
    checksum, found = told.get("checksum"), told.get("partitions")
    partitions = ", ".join(map(str, found if isinstance(found, list) else []))
    version = told.get("version")
    outcome = f"already in force: version {version} of {rm}" if checksum == before else f"{rm} runs version {version}"
    sys.stdout.write(f"{outcome}, partitions: {partitions}\n{_written_back(told)}{checksum}\n")
    return 0


def _written_back(told: dict[str, object]) -> str:
    """The line about the watched file and whom else it concerns; nothing, if it has no part in this."""
    if not told.get("file"):
        return ""
    followers = told.get("followers")
    others = [str(one) for one in followers] if isinstance(followers, list) else []
    more = f"; {', '.join(others)} {'follows' if len(others) == 1 else 'follow'} it" if others else ""
    return f"written back to the watched file{more}\n"


def _history(args: argparse.Namespace, rest: Rest, rm: str) -> int:
    try:
        answer = rest.get("config", "history", rm=rm)
    except Failed as failed:
        raise _with_others(failed, rest, rm) from None
    if args.json:
        sys.stdout.write(answer.text)
        return 0
    rows = [
        (
            f"{entry.get('version')}{' *' if entry.get('current') else ''}",
            _local(entry.get("at")),
            str(entry.get("author", "")) or "-",
            str(entry.get("origin", "")),
            str(entry.get("checksum", ""))[:SHOWN_CHECKSUM],
        )
        for entry in answer.as_list()
    ]
    show(("version", "when", "author", "origin", "checksum"), rows)
    return 0


def _local(at: object) -> str:
    """A time in Unix nanoseconds as the clock on the wall shows it."""
    if not isinstance(at, int) or at <= 0:
        return "-"
    return datetime.fromtimestamp(at / 1e9, UTC).astimezone().isoformat(" ", "seconds")


def _diff(args: argparse.Namespace, rest: Rest, rm: str) -> int:
    b_name, b_text = _side(rest, rm, args.b)
    a_name, a_text = _side(rest, rm, args.a or _version_before(rest, rm, args.b))
    if args.summary:
        return show_summary((a_name, a_text), (b_name, b_text), in_json=args.json)
    lines = list(difflib.unified_diff(a_text.splitlines(), b_text.splitlines(), a_name, b_name, lineterm=""))
    if args.json:
        print_json({"a": a_name, "b": b_name, "diff": lines})
    else:
        sys.stdout.writelines(f"{line}\n" for line in lines)
    return 1 if lines else 0


def _side(rest: Rest, rm: str, name: str) -> tuple[str, str]:
    """What one side of a comparison is called, and its text."""
    if name == CURRENT:
        return f"{rm} {CURRENT}", _current(rest, rm).text
    if name.isascii() and name.isdecimal():
        return f"{rm} version {name}", _version(rest, rm, name).text
    return name, _read(name)


def _version_before(rest: Rest, rm: str, name: str) -> str:
    """The version before the one that is meant; the current one, if a file is."""
    versions = rest.get("config", "history", rm=rm).as_list()
    for entry, before in pairwise(versions):
        if (name == CURRENT and entry.get("current")) or str(entry.get("version")) == name:
            return str(before.get("version"))
    if name == CURRENT or name.isdecimal():
        raise Failed(f"there is no version before {name} of {rm}: give both sides, or a file")
    return CURRENT


def _read(file: str) -> str:
    """The text of a file; one that no system would take is refused here, not in the middle of sending it."""
    try:
        data = read_bounded(file)
        text = data[:TEXT_BYTES_MAX].decode("utf-8", errors="ignore" if len(data) > TEXT_BYTES_MAX else "strict")
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise Failed(f"{file}: cannot be read: {reason}", status=UNUSABLE) from None
    except UnicodeDecodeError as error:
        raise Failed(f"{file}: cannot be read: not UTF-8 text (byte {error.start})", status=UNUSABLE) from None
    if len(data) > TEXT_BYTES_MAX:
        raise Failed(f"{file}: larger than {TEXT_BYTES_MAX:,} bytes, which is the most a configuration may have")
    return text


def _line_of(file: str, problem: dict[str, object], label: str = "") -> str:
    """A problem as `yunishard validate` writes it."""
    name = "<stdin>" if file == STDIN else file or "configuration"
    place = ":".join(str(part) for part in (name, problem.get("line")) if part)
    path = f"{problem['path']}: " if problem.get("path") else ""
    hint = f" ({problem['hint']})" if problem.get("hint") else ""
    return " ".join(f"{place}: {label}{path}{problem.get('message', '')}{hint}".splitlines())


_ACTIONS: Final[dict[str, tuple[Callable[[argparse.Namespace, Rest, str], int], str]]] = {
    "get": (_get, "print the text in force, as it was written"),
    "put": (_put, "run another configuration"),
    "history": (_history, "list the versions that are kept, the newest first"),
    "diff": (_diff, "compare two versions, or one with a file"),
    "rollback": (_rollback, "run an earlier version again, as a new one"),
}


# The checksum that a change expects to be in force --------------------------------------------------------------------

ANYTHING: Final = "*"
CHECKSUM_DIGITS: Final = 64
PREFIX_DIGITS_MIN: Final = 8
"""Hexadecimal digits of a checksum that are taken for it: so many that nobody meets another one by chance."""

SHOWN_LENGTH_MAX: Final = 80
"""Characters of what was written that a message repeats."""

_PREFIX: Final = re.compile(rf"[0-9A-Fa-f]{{{PREFIX_DIGITS_MIN},{CHECKSUM_DIGITS}}}")
_KEY: Final = "checksum"


def required(*, option: str, text: str, in_force: str) -> str:
    """The checksum to send along, or ANYTHING; `in_force` is what was just read. The option counts before the text.

    Raises:
        Failed: what was named is not in force, or is no checksum.
    """
    if option == ANYTHING:
        return option
    if option:
        if not _PREFIX.fullmatch(option):
            wanted = f"a checksum, its first {PREFIX_DIGITS_MIN} hexadecimal digits or more, or {ANYTHING}"
            raise Failed(f"--if-match: expected {wanted}, got {_shown(option)}", status=UNUSABLE)
        if not in_force.startswith(option.upper()):
            raise Failed(
                f"--if-match is {_shown(option)}, but in force is {in_force}: somebody has changed it meanwhile;"
                " look at it (`yunishard config get`), then try again"
            )
        return in_force
    own = key_of(text)
    if own and own.upper() != in_force:
        raise Failed(
            f"the key `{_KEY}` of the file is {_shown(own)}, but in force is {in_force}: look at what has changed"
            " (`yunishard config diff current FILE`), then put this checksum there or leave the key out"
        )
    return in_force


def key_of(text: str) -> str:
    """The checksum that a configuration carries as its own key; empty if none, or if the text cannot be read."""
    if _KEY not in text:
        return ""  # most texts, and large ones take seconds to read
    try:
        document = compose(text.removeprefix("\ufeff"))
    except ConfigError:
        return ""  # the system tells everything that is wrong with it
    for key, value in document.entries if isinstance(document, Mapping) else ():
        if isinstance(key, Scalar) and key.text == _KEY and isinstance(value, Scalar) and not is_null(value):
            return value.text.strip()
    return ""


def _shown(text: str) -> str:
    return repr(text if len(text) <= SHOWN_LENGTH_MAX else f"{text[:SHOWN_LENGTH_MAX]}...")


# `config diff --summary` ----------------------------------------------------------------------------------------------

Side = tuple[str, str]
"""What one side of a comparison is called, and its text."""


def show_summary(a: Side, b: Side, *, in_json: bool) -> int:
    """Print one line for each change from `a` to `b`; the exit status, which is 1 if there is any."""
    found = find_differences(_parse(a), _parse(b))
    if in_json:
        print_json(msgspec.to_builtins(found))
    else:
        sys.stdout.writelines(f"{_one_line(one)}\n" for one in found)
    return 1 if found else 0


def _parse(side: Side) -> Configuration:
    name, text = side
    try:
        return load(text)
    except ConfigError as error:
        more = len(error.problems) - 1
        others = f" (and {more} more: see `yunishard validate`)" if more else ""
        reason = " ".join(str(error.problems[0]).splitlines())
        raise Failed(f"{name}: no configuration to compare: {reason}{others}", status=UNUSABLE) from None


def _one_line(difference: Difference) -> str:
    return " ".join(str(difference).splitlines())  # a value may have several
