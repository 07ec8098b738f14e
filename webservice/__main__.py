"""`python -m webservice --broker ADDRESS --rest HOST:PORT`: the front end for people, browsers and Prometheus."""

import argparse
import ipaddress
import os
import sys
from pathlib import Path

from common.acl import Acl, AclError, parse_acl
from common.process import Life, main, parser
from common.token_keys import TokenKeyError
from webservice.audit import AuditLog
from webservice.authn import CERTIFICATE, PROXY, TOKEN, Door, People
from webservice.authz import Entrance, Guard
from webservice.calls import HistoryFile, Startup
from webservice.config_view import deadlock_of
from webservice.cross_site import Cors
from webservice.service import Tls, listen, read_settings, serve
from webservice.tokens import KeyFile, Terms


def host_and_port(text: str) -> tuple[str, int]:
    """The two parts of `HOST:PORT`; an IPv6 address stands in brackets."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise argparse.ArgumentTypeError(f"{text!r}: an IPv6 address stands in brackets, as in [::1]:9080")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT with a port from 0 to 65535")
    return host, int(port)


def acl(text: str) -> Acl:
    """A list of users and groups, as in a queue's `adminacl`."""
    try:
        return parse_acl(text)
    except AclError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def words(text: str) -> tuple[str, ...]:
    """What has commas between; nothing for an empty text."""
    return tuple(text.split(",")) if text else ()


def options() -> argparse.ArgumentParser:
    """The command line."""
    described = parser("webservice", "Answer REST requests about all partitions.")
    described.add_argument(
        "--broker", required=True, metavar="ADDRESS", help="the broker's address, such as ipc://PATH"
    )
    described.add_argument("--rest", required=True, type=host_and_port, metavar="HOST:PORT", help="port 0 means any")
    described.add_argument("--settings", metavar="FILE", help="the settings in force, as JSON, to show them")
    described.add_argument(
        "--scheduler-admins",
        type=acl,
        default="",
        metavar="ACL",
        help="besides, without --auth, the user who runs this",
    )
    described.add_argument("--tls-cert", metavar="FILE", help="certificate of the port, PEM; without one no TLS")
    described.add_argument("--tls-key", metavar="FILE", help="its key, PEM")
    described.add_argument("--tls-client-ca", metavar="FILE", help="who signs certificates of people, PEM")
    described.add_argument(
        "--audit", type=Path, metavar="FILE", help="where changes are written down; without it nowhere"
    )
    described.add_argument(
        "--history", type=Path, metavar="FILE", help="where to keep what there was; without it nowhere"
    )
    described.add_argument(
        "--state", type=Path, metavar="DIR", help="the directory whose free space the health check looks at"
    )
    described.add_argument("--history-max", type=int, default=1 << 30, metavar="BYTES", help="room for that")
    described.add_argument(
        "--history-age", type=float, default=30 * 86400.0, metavar="SECONDS", help="after which it goes"
    )
    described.add_argument("--web-root", type=Path, metavar="DIR", help="files of a web UI to serve")
    described.add_argument("--default-rm", default="", metavar="ID", help="whose partitions have their plain names")
    described.add_argument("--debug", action="store_true", help="let people look into this process")
    described.add_argument(
        "--cors", type=words, default=(), metavar="ORIGINS", help="whose pages may use the API, or *"
    )
    described.add_argument("--hosts", type=words, default=(), metavar="NAMES", help="of this server, or *")
    described.add_argument("--auth", type=words, default=(), metavar="WAYS", help="how people have to say who they are")
    described.add_argument("--auth-keys", type=Path, metavar="FILE", help="keys of tokens")
    described.add_argument("--auth-issuer", default="", metavar="TEXT", help="of the tokens (default: any)")
    described.add_argument("--auth-audience", default="", metavar="TEXT", help="of the tokens (default: none)")
    described.add_argument(
        "--auth-proxy", type=words, default=(), metavar="NETWORKS", help="of proxies that are believed"
    )
    return described


def startup_of(args: argparse.Namespace) -> Startup:
    """What the routes are to know of the command line.

    Raises:
        OSError: in one line, with the reason.
    """
    history = HistoryFile(args.history, args.history_max, args.history_age) if args.history else None
    return Startup(
        settings=read_settings(args.settings or ""),
        deadlock=deadlock_of(os.environ),
        history=history,
        state=args.state,
        web_root=args.web_root,
        debug=args.debug,
        cors=args.cors,
        default_rm=args.default_rm,
    )


def guard_of(args: argparse.Namespace, people: People) -> Guard:
    """Who may come in, by the command line.

    Raises:
        OSError: in one line, with the reason.
    """
    door = Door(
        keys=_key_file(args.auth_keys) if TOKEN in args.auth else None,
        terms=Terms(args.auth_issuer, args.auth_audience),
        certificates=CERTIFICATE in args.auth,
        proxies=tuple(map(ipaddress.ip_network, args.auth_proxy)) if PROXY in args.auth else (),
    )
    by_browser = door.certificates or bool(door.proxies)
    return Guard(
        Entrance(
            people, door, admins=args.scheduler_admins, origins=args.cors, hosts=(*args.hosts, args.rest[0].lower())
        ),
        Cors(args.cors, is_open=door.is_open, credentials=by_browser),
        AuditLog(args.audit) if args.audit else None,
    )


def _key_file(file: Path) -> KeyFile:
    try:
        return KeyFile(file)
    except TokenKeyError as error:
        raise OSError(f"{file}: {error}") from None


def run() -> int:
    """Start, serve, stop; the exit status."""
    args = options().parse_args()
    tls = Tls(args.tls_cert, args.tls_key, args.tls_client_ca) if args.tls_cert and args.tls_key else None

    async def start(life: Life) -> None:
        startup = startup_of(args)
        people = People(args.scheduler_admins)
        guard = guard_of(args, people)
        listener = listen(*args.rest)
        await serve(
            life,
            broker=args.broker,
            listener=listener,
            people=people,
            startup=startup,
            guard=guard,
            tls=tls,
            heartbeat_s=args.heartbeat,
        )

    return main("webservice", args, start)


if __name__ == "__main__":
    sys.exit(run())
