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

# The docstring is the help text. The command works on files, with no running system. The web service accepts each
# token that the secret of a key file has signed until the token expires or the secret is removed from the file.
# Not here: the format of key files (`common/token_keys.py`), verifying a token (`webservice/tokens.py`).

import argparse
import json
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
from yunishard.cli import UNUSABLE, CommandFailed, describe
from yunishard.commands.console import STDIN, config_directory, print_json, write

KEYS: Final = "tokens.jwks"
"""Name of the key file in the user's configuration directory."""

LIFETIME: Final = "12h"
LIFETIME_MAX_S: Final = 90 * 86400
"""Bounds the use of a stolen token, as a single token cannot be revoked."""

TOKEN_BYTES_MAX: Final = 8 << 10
"""The web service refuses larger tokens."""


def add_token_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `yunishard token`."""
    describe(parser, __doc__)
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
    """Run the wanted action; return the exit status."""
    if [args.user is not None, args.new_key, args.show is not None].count(True) != 1:
        text = "give one of USER, --new-key and --show, see `yunishard token --help`"
        raise CommandFailed(text, status=UNUSABLE)
    file = config_directory() / KEYS if args.keys is None else Path(args.keys)
    if args.new_key:
        _create_key(file, in_json=args.json)
    elif args.show is not None:
        _show(args.show, in_json=args.json)
    else:
        _sign(args, file)
    return 0


def _create_key(file: Path, *, in_json: bool) -> None:
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


def _sign(args: argparse.Namespace, file: Path) -> None:
    groups = [name.strip() for name in args.groups.split(",")] if args.groups else []
    for name in (args.user, *groups):
        if not is_person(name):
            raise CommandFailed(f"{name!r} can be no user or group", status=UNUSABLE)
    try:
        key = read_token_keys(file).secret
    except TokenKeyError as error:
        raise CommandFailed(f"{file}: {error}; `yunishard token --new-key` makes one", status=UNUSABLE) from None
    if key is None:
        text = f"{file}: holds no secret to sign with, only public keys: sign with the private ones"
        raise CommandFailed(text, status=UNUSABLE)
    import jwt  # imported here, as it takes a tenth of a second

    issued = int(time.time())
    given = {"iss": args.issuer, "sub": args.user, "aud": args.audience, "groups": groups, "scope": args.scope}
    claims: dict[str, object] = {name: value for name, value in given.items() if value}
    claims |= {"iat": issued, "exp": issued + _parse_lifetime_s(args.lifetime)}
    token = jwt.encode(claims, key.jwk, key.algorithm, headers={"kid": key.id})
    if len(token) > TOKEN_BYTES_MAX:
        text = f"the token would have {len(token)} bytes, {TOKEN_BYTES_MAX} are the most: name fewer groups"
        raise CommandFailed(text, status=UNUSABLE)
    if args.json:
        print_json({"token": token, "claims": claims})
    else:
        write(token)


def _show(token: str, *, in_json: bool) -> None:
    text = sys.stdin.read(TOKEN_BYTES_MAX + 2) if token == STDIN else token
    header, claims = _decode(text.strip())
    if in_json:
        print_json({"header": header, "claims": claims, "verified": False})
        return
    lines = [(json.dumps(name)[1:-1], _format_claim(name, value)) for name, value in (*header.items(), *claims.items())]
    width = max((len(name) for name, _ in lines), default=0)
    write("not verified: a forged token can contain anything\n")
    for name, value in lines:
        write(f"{name:<{width}}  {value}")


def _decode(token: str) -> tuple[dict[str, object], dict[str, object]]:
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
        most = LIFETIME_MAX_S // 86400
        wanted = f"a duration from 1s to {most}d, such as 30m, 12h or 7d"
        raise CommandFailed(f"--lifetime: expected {wanted}, got {text!r}", status=UNUSABLE)
    return int(found)
