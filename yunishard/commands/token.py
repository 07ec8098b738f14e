"""`yunishard token`: make the tokens with which people say over REST who they are, and look into them.

Works on files alone, with no running system: whoever has the secret of its key file can make a token for anybody, and
the web service takes every token that is signed with it until the token expires or the secret is gone from the file.

Not here: what a key file looks like (`common/token_keys.py`), whether a token counts (`webservice/tokens.py`).
"""

import argparse
import json
import os
import re
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from common.names import is_person
from common.text_formats import parse_duration
from common.token_keys import TokenKeyError, read_token_keys, write_secret
from yunishard.commands.console import REFUSED, STDIN, UNUSABLE, print_json

ABOUT: Final = """\
Make a token that says over REST who somebody is, for a system that runs with
`--auth token`; it is printed, and nothing else. Or make the key file for that,
or show what is in a token."""

MORE: Final = """\
examples:
  yunishard token --new-key                       once; says where it is
  yunishard up --auth token --auth-keys ~/.config/yunishard/tokens.jwks
  yunishard token alice --groups ops,dev > alice.token
  yunishard token prometheus --scope read --lifetime 90d > prometheus.token
  yunishard config get --token-file alice.token
  curl -H "Authorization: Bearer $(cat alice.token)" http://127.0.0.1:9080/ws/v1/partitions
  yunishard token --show < alice.token

The key file is $XDG_CONFIG_HOME/yunishard/tokens.jwks, usually
~/.config/yunishard/tokens.jwks, unless --keys says otherwise. Whoever can read
it can make a token for anybody.

exit codes:
  0  done
  1  refused: there is such a key file already, or this is no token
  2  wrong usage, or a file that cannot be used"""

KEYS: Final = "tokens.jwks"
"""The key file's name in the directory of our files."""

LIFETIME: Final = "12h"
LIFETIME_MAX_S: Final = 90 * 86400
"""A token cannot be taken back alone, so none may live longer."""

TOKEN_BYTES_MAX: Final = 8 << 10
"""A longer token is taken nowhere."""


class _Unusable(Exception):
    """What was asked for cannot be; the text says why."""


def add_token_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description, parser.epilog = ABOUT, MORE
    parser.add_argument("user", metavar="USER", nargs="?", help="whom the token is for")
    parser.add_argument("--groups", metavar="NAMES", default="", help="groups they are in, with commas between")
    parser.add_argument(
        "--lifetime",
        metavar="DURATION",
        default=LIFETIME,
        help=f"as in 30m, 12h or 90d, the most (default: {LIFETIME})",
    )
    parser.add_argument(
        "--scope", choices=("read",), help="they may look, and change nothing (default: whatever they may)"
    )
    parser.add_argument("--issuer", metavar="TEXT", help="for a system with --auth-issuer")
    parser.add_argument("--audience", metavar="TEXT", help="for a system with --auth-audience")
    parser.add_argument("--keys", metavar="FILE", type=Path, help="the key file (default: see below)")
    parser.add_argument("--new-key", action="store_true", help="make the key file; one that is there stays as it is")
    parser.add_argument(
        "--show",
        metavar="TOKEN",
        nargs="?",
        const=STDIN,
        help="show what is in a token, read from standard input if it is left out or -; nothing is checked",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run_token(args: argparse.Namespace) -> int:
    """Do it; the exit status."""
    wanted = [args.user is not None, args.new_key, args.show is not None]
    if wanted.count(True) != 1:
        return _failed("say one of USER, --new-key and --show, see `yunishard token --help`", UNUSABLE)
    try:
        if args.new_key:
            _new_key(args)
        elif args.show is not None:
            _show(args)
        else:
            _sign(args)
    except FileExistsError as error:
        return _failed(f"{error.filename}: there is one already; it has not changed", REFUSED)
    except _NoToken as error:
        return _failed(str(error), REFUSED)
    except _Unusable as error:
        return _failed(str(error), UNUSABLE)
    except OSError as error:
        if error.filename is None:
            raise  # standard output, which is not our business
        return _failed(f"{error.filename}: {(error.strerror or str(error)).lower()}", UNUSABLE)
    return 0


# Actions --------------------------------------------------------------------------------------------------------------


def _new_key(args: argparse.Namespace) -> None:
    file = _keys(args)
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    key_id = write_secret(file)
    if args.json:
        print_json({"file": str(file), "kid": key_id})
    else:
        sys.stdout.write(f"{file}  secret: whoever reads it can make a token for anybody\n\n")
        sys.stdout.write(f"next: yunishard up --auth token --auth-keys {file}\n")


def _sign(args: argparse.Namespace) -> None:
    groups = [name.strip() for name in args.groups.split(",")] if args.groups else []
    for name in (args.user, *groups):
        if not is_person(name):
            raise _Unusable(f"{name!r} can be no user or group")
    file = _keys(args)
    try:
        key = read_token_keys(file).secret
    except TokenKeyError as error:
        raise _Unusable(f"{file}: {error}; `yunishard token --new-key` makes one") from None
    if key is None:
        raise _Unusable(f"{file}: holds no secret to sign with, only public keys: whoever has the private ones can")
    import jwt  # not before it is needed: it takes a tenth of a second

    issued = int(time.time())
    said = {"iss": args.issuer, "sub": args.user, "aud": args.audience, "groups": groups, "scope": args.scope}
    claims: dict[str, object] = {name: value for name, value in said.items() if value}
    claims |= {"iat": issued, "exp": issued + _lifetime_s(args.lifetime)}
    token = jwt.encode(claims, key.jwk, key.algorithm, headers={"kid": key.id})
    if len(token) > TOKEN_BYTES_MAX:
        raise _Unusable(f"the token would have {len(token)} bytes, {TOKEN_BYTES_MAX} are the most: name fewer groups")
    if args.json:
        print_json({"token": token, "claims": claims})
    else:
        sys.stdout.write(f"{token}\n")


def _show(args: argparse.Namespace) -> None:
    text = sys.stdin.read(TOKEN_BYTES_MAX + 2) if args.show == STDIN else args.show
    header, claims = _parts(text.strip())
    if args.json:
        print_json({"header": header, "claims": claims, "verified": False})
        return
    lines = [(json.dumps(name)[1:-1], _shown(name, value)) for name, value in (*header.items(), *claims.items())]
    width = max((len(name) for name, _ in lines), default=0)
    sys.stdout.write("not checked: whoever made it can write anything here\n\n")
    for name, value in lines:
        sys.stdout.write(f"{name:<{width}}  {value}\n")


# Parts ----------------------------------------------------------------------------------------------------------------


class _NoToken(Exception):
    """What is to be shown is no token."""


def _parts(token: str) -> tuple[dict[str, object], dict[str, object]]:
    """Header and claims, names first as they are shown on a terminal."""
    if len(token) > TOKEN_BYTES_MAX:
        raise _NoToken(f"this has more than {TOKEN_BYTES_MAX} bytes, so it is no token")
    import jwt

    try:
        found = jwt.decode_complete(token, options={"verify_signature": False})
        kind = dict[str, object]
        return msgspec.convert(found["header"], kind), msgspec.convert(found["payload"], kind)
    except (jwt.PyJWTError, msgspec.MsgspecError, ValueError, OverflowError, RecursionError):
        raise _NoToken("this is no token (JWT)") from None


def _shown(name: str, value: object) -> str:
    """A value for people, in one line of a terminal whatever is in it."""
    text = json.dumps(value)
    if name not in ("exp", "iat", "nbf") or not isinstance(value, int | float):
        return text
    try:
        when = datetime.fromtimestamp(value, tz=UTC)
    except (OverflowError, ValueError, OSError):
        return f"{text} (no time)"
    return f"{text} ({when:%Y-%m-%d %H:%M:%S} UTC{', expired' if name == 'exp' and value < time.time() else ''})"


def _lifetime_s(text: str) -> int:
    days = re.fullmatch(r"([0-9]{1,4})d", text)
    found = float(days[1]) * 86400 if days else parse_duration(text)
    if found is None or not 1 <= found <= LIFETIME_MAX_S:
        most = LIFETIME_MAX_S // 86400
        raise _Unusable(f"--lifetime: expected a duration from 1s to {most}d, such as 30m, 12h or 7d, got {text!r}")
    return int(found)


def _keys(args: argparse.Namespace) -> Path:
    if args.keys is not None:
        return Path(args.keys)
    home = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    return (home if home.is_absolute() else Path.home() / ".config") / "yunishard" / KEYS


def _failed(reason: str, status: int) -> int:
    sys.stderr.write(f"yunishard token: {reason}\n")
    return status
