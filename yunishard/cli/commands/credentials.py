"""`yunishard keys` and `yunishard token`: create keys for the native port, and tokens that identify users over REST.

Both work on files, with no running system. A system reads a changed allow-list within a second. A list is replaced as a
whole or not at all; lines about other keys, and comments, stay as they are. The web service accepts each token that the
secret of a key file has signed until the token expires or the secret is removed from the file.

The docstrings of `run_keys` and `run_token` are the help texts. Not here: the formats of key files and allow-lists
(`common/transport/curve_keys.py`, `common/transport/token_keys.py`), verifying a token
(`yunishard/webservice/credentials.py`).
"""

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from yunishard.cli.commands.console import STDIN, add_actions, config_directory, print_json
from yunishard.cli.commands.rest import TOKEN_BYTES_MAX
from yunishard.cli.main import CommandFailed, CommandUnusable
from yunishard.common.names import is_person, parse_rm_ids
from yunishard.common.process.folders import lock_folder
from yunishard.common.process.terminal import print_table, write, write_text
from yunishard.common.text_formats import parse_duration
from yunishard.common.transport import curve_keys
from yunishard.common.transport.token_keys import TokenKeyError, read_token_keys, write_secret

# yunishard keys -------------------------------------------------------------------------------------------------------

LIST_MODE: Final = 0o644
"""Mode of a new list, which contains no secret."""


def add_keys_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `yunishard keys`."""
    for name, own in add_actions(parser, {name: about for name, (_, about) in _KEY_ACTIONS.items()}).items():
        own.add_argument("--dir", metavar="DIR", type=Path, help="directory of the keys (default: ~/.config/yunishard)")
        if name != "new":
            about = f"the list (default: {curve_keys.ALLOWED} in DIR)"
            own.add_argument("--list", metavar="FILE", type=Path, help=about)
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
    action, _ = _KEY_ACTIONS[args.action]
    try:
        action(args)
    except FileExistsError as error:
        raise CommandFailed(str(error)) from None
    except (ValueError, curve_keys.KeyFileError) as error:
        raise CommandUnusable(str(error)) from None
    return 0


def _create_pair(args: argparse.Namespace) -> None:
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


def _list_keys(args: argparse.Namespace) -> None:
    _, allowed = read_list(_list_file(args))
    rows = [(curve_keys.fingerprint(key), key, one.rm_ids, one.comment, one.since) for key, one in allowed.items()]
    if args.json:
        names = ("fingerprint", "publicKey", "rmIds", "comment", "since")
        print_json([dict(zip(names, row, strict=True)) for row in rows])
        return
    shown = [(name, ",".join(rm_ids), comment or "-", since or "-") for name, _, rm_ids, comment, since in rows]
    print_table(("FINGERPRINT", "RM IDS", "COMMENT", "SINCE"), shown)
    if not rows:
        sys.stderr.write(f"{_list_file(args)} allows no key; `yunishard keys allow FILE RM-ID` adds one\n")


def _allow_key(args: argparse.Namespace) -> None:
    key = args.key if curve_keys.is_key(args.key) else curve_keys.read_public(_key_file(args))
    comment = " ".join(args.comment.split())
    new = curve_keys.AllowedKey(key, parse_rm_ids(args.rms), comment, since=datetime.now(UTC).date().isoformat())
    file = _list_file(args)
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fingerprint = curve_keys.fingerprint(key)
    with edit_list(file) as (lines, allowed):
        before = allowed.get(key)
        if before is not None:
            rms = ",".join(before.rm_ids)
            raise CommandFailed(f"key {fingerprint} is allowed for {rms} already: revoke it first, or edit {file}")
        lines.append(new.line())
    write(f"{file}: key {fingerprint} is allowed for {','.join(new.rm_ids)}")


def _revoke_key(args: argparse.Namespace) -> None:
    file = _list_file(args)
    with edit_list(file) as (lines, _):
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
    write_text("\n".join(messages))


def _remaining_rm_ids(entry: curve_keys.AllowedKey, revoked: str) -> tuple[str, ...]:
    """Return the RM ids that may still use a key after a key, a fingerprint or an RM id was revoked."""
    if revoked in (entry.key, curve_keys.fingerprint(entry.key)):
        return ()
    return tuple(one for one in entry.rm_ids if one != revoked)


_KEY_ACTIONS: Final[dict[str, tuple[Callable[[argparse.Namespace], None], str]]] = {
    "new": (_create_pair, "create a key pair: two files"),
    "list": (_list_keys, "show which keys are allowed, and for which RMs"),
    "allow": (_allow_key, "allow resource managers to use a key"),
    "revoke": (_revoke_key, "remove a key from the list, or an RM id"),
}


def _directory(args: argparse.Namespace) -> Path:
    return config_directory() if args.dir is None else Path(args.dir)


def _key_file(args: argparse.Namespace) -> Path:
    """Return the named file; if it does not exist here, the one in the directory of the keys."""
    here, there = Path(args.key), _directory(args) / args.key
    return there if there.is_file() and not here.exists() else here


def _list_file(args: argparse.Namespace) -> Path:
    return _directory(args) / curve_keys.ALLOWED if args.list is None else Path(args.list)


def read_list(file: Path) -> tuple[list[str], curve_keys.AllowList]:
    """Return the lines of the allow-list and its entries; none if it does not exist."""
    try:
        text = curve_keys.read_allow_list(file)
        return text.splitlines(), curve_keys.parse_allow_list(text)
    except FileNotFoundError:
        return [], {}
    except curve_keys.AllowListError as error:
        raise curve_keys.AllowListError(f"{file}: {error}") from None


@contextmanager
def edit_list(file: Path) -> Iterator[tuple[list[str], curve_keys.AllowList]]:
    """Lock the list; give its lines and its entries. After the block write the lines back, unless it raised."""
    target = file.resolve()
    new = target.with_name(f".{target.name}.new")  # the lock of the directory makes it the only one
    with lock_folder(target.parent) as directory:
        lines, entries = read_list(file)
        yield lines, entries
        mode = target.stat().st_mode & 0o777 if target.exists() else LIST_MODE
        try:
            with new.open("w") as written:
                os.fchmod(written.fileno(), mode)
                written.writelines(f"{line}\n" for line in lines)
                written.flush()
                os.fsync(written.fileno())
            new.replace(target)
        finally:
            new.unlink(missing_ok=True)
        os.fsync(directory)


def _parse_name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,63}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not made of up to 64 letters, digits and _ . : -")
    return text


# yunishard token ------------------------------------------------------------------------------------------------------

JWKS_FILE: Final = "tokens.jwks"
"""Name of the key file in the user's configuration directory."""

LIFETIME: Final = "12h"
LIFETIME_MAX_S: Final = 90 * 86400
"""Bounds the use of a stolen token, as a single token cannot be revoked."""


def add_token_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `yunishard token`."""
    parser.add_argument("user", metavar="USER", nargs="?", help="the user of the token")
    parser.add_argument("--groups", metavar="NAMES", default="", help="groups of the user, with commas between")
    about = f"such as 30m, 12h or 90d, the maximum (default: {LIFETIME})"
    parser.add_argument("--lifetime", metavar="DURATION", default=LIFETIME, help=about)
    about = "allow reading only (default: everything that the user may do)"
    parser.add_argument("--scope", choices=("read",), help=about)
    parser.add_argument("--issuer", metavar="TEXT", help="for a system with --auth-issuer")
    parser.add_argument("--audience", metavar="TEXT", help="for a system with --auth-audience")
    parser.add_argument("--keys", metavar="FILE", type=Path, help="the key file (default: see below)")
    parser.add_argument("--new-key", action="store_true", help="create the key file, unless it exists")
    about = "show the claims of a token without verifying it; - or nothing reads it from standard input"
    parser.add_argument("--show", metavar="TOKEN", nargs="?", const=STDIN, help=about)
    parser.add_argument("--json", action="store_true", help="print JSON")


def run_token(args: argparse.Namespace) -> int:
    """Create a token that identifies a user over REST, for a system that runs with
    `--auth token`; the output is the token alone. Or create the key file that
    signs tokens, or show the claims of a token.

    examples:
      yunishard token --new-key                       once; prints the file name
      yunishard up --auth token --auth-keys ~/.config/yunishard/tokens.jwks
      yunishard token alice --groups ops,dev > alice.token
      yunishard token prometheus --scope read --lifetime 90d > prometheus.token
      yunishard config get --token-file alice.token
      curl -H "Authorization: Bearer $(cat alice.token)" http://127.0.0.1:9080/ws/v1/partitions
      yunishard token --show < alice.token

    The key file is that of --keys, or $XDG_CONFIG_HOME/yunishard/tokens.jwks,
    usually ~/.config/yunishard/tokens.jwks. Its readers can create a token for
    any user.

    exit codes:
      0  done
      1  refused: the key file exists already, or this is no token
      2  wrong usage, or a file that cannot be used
    """
    if [args.user is not None, args.new_key, args.show is not None].count(True) != 1:
        raise CommandUnusable("give one of USER, --new-key and --show, see `yunishard token --help`")
    file = config_directory() / JWKS_FILE if args.keys is None else Path(args.keys)
    if args.new_key:
        _create_token_key(file, in_json=args.json)
    elif args.show is not None:
        _show_token(args.show, in_json=args.json)
    else:
        _sign_token(args, file)
    return 0


def _create_token_key(file: Path, *, in_json: bool) -> None:
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        key_id = write_secret(file)
    except FileExistsError:
        raise CommandFailed(f"{file}: there is one already; it has not changed") from None
    if in_json:
        print_json({"file": str(file), "kid": key_id})
    else:
        write(f"{file}  secret: its readers can create a token for any user\n")
        write(f"next: yunishard up --auth token --auth-keys {file}")


def _sign_token(args: argparse.Namespace, file: Path) -> None:
    groups = [name.strip() for name in args.groups.split(",")] if args.groups else []
    for name in (args.user, *groups):
        if not is_person(name):
            raise CommandUnusable(f"{name!r} can be no user or group")
    try:
        key = read_token_keys(file).secret
    except TokenKeyError as error:
        raise CommandUnusable(f"{file}: {error}; `yunishard token --new-key` makes one") from None
    if key is None:
        raise CommandUnusable(f"{file}: holds no secret to sign with, only public keys: sign with the private ones")
    import jwt  # imported here, as it takes a tenth of a second

    issued = int(time.time())
    given = {"iss": args.issuer, "sub": args.user, "aud": args.audience, "groups": groups, "scope": args.scope}
    claims: dict[str, object] = {name: value for name, value in given.items() if value}
    claims |= {"iat": issued, "exp": issued + _parse_lifetime_s(args.lifetime)}
    token = jwt.encode(claims, key.jwk, key.algorithm, headers={"kid": key.id})
    if len(token) > TOKEN_BYTES_MAX:
        raise CommandUnusable(
            f"the token would have {len(token)} bytes, {TOKEN_BYTES_MAX} are the most: name fewer groups"
        )
    if args.json:
        print_json({"token": token, "claims": claims})
    else:
        write(token)


def _show_token(token: str, *, in_json: bool) -> None:
    text = sys.stdin.read(TOKEN_BYTES_MAX + 2) if token == STDIN else token
    header, claims = _decode_token(text.strip())
    if in_json:
        print_json({"header": header, "claims": claims, "verified": False})
        return
    lines = [(json.dumps(name)[1:-1], _format_claim(name, value)) for name, value in (*header.items(), *claims.items())]
    width = max((len(name) for name, _ in lines), default=0)
    write("not verified: a forged token can contain anything\n")
    for name, value in lines:
        write(f"{name:<{width}}  {value}")


def _decode_token(token: str) -> tuple[dict[str, object], dict[str, object]]:
    """Return header and claims of a token, without verifying it."""
    if len(token) > TOKEN_BYTES_MAX:
        raise CommandFailed(f"this has more than {TOKEN_BYTES_MAX} bytes, so it is no token")
    import jwt

    try:
        found = jwt.decode_complete(token, options={"verify_signature": False})
        kind = dict[str, object]
        return msgspec.convert(found["header"], kind), msgspec.convert(found["payload"], kind)
    except (jwt.PyJWTError, msgspec.MsgspecError, ValueError, OverflowError, RecursionError):
        raise CommandFailed("this is no token (JWT)") from None


def _format_claim(name: str, value: object) -> str:
    """Format a value in one line of printable characters; times are readable."""
    text = json.dumps(value)
    if name not in ("exp", "iat", "nbf") or not isinstance(value, int | float):
        return text
    try:
        when = datetime.fromtimestamp(value, tz=UTC)
    except (OverflowError, ValueError, OSError):
        return f"{text} (no time)"
    return f"{text} ({when:%Y-%m-%d %H:%M:%S} UTC{', expired' if name == 'exp' and value < time.time() else ''})"


def _parse_lifetime_s(text: str) -> int:
    days = re.fullmatch(r"([0-9]{1,4})d", text)
    found = float(days[1]) * 86400 if days else parse_duration(text)
    if found is None or not 1 <= found <= LIFETIME_MAX_S:
        wanted = f"a duration from 1s to {LIFETIME_MAX_S // 86400}d, such as 30m, 12h or 7d"
        raise CommandUnusable(f"--lifetime: expected {wanted}, got {text!r}")
    return int(found)
