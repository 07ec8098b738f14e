"""The web service's command line: `python -m webservice --broker ADDRESS --rest HOST:PORT`."""

import argparse
import ipaddress
import os
import sys
from pathlib import Path

from common.acl import Acl, AclError, parse_acl
from common.process import Life, main, parser
from common.token_keys import TokenKeyError
from webservice.audit import AuditLog
from webservice.authn import CERTIFICATE, PROXY, TOKEN, Authenticator, LoopbackUsers
from webservice.authz import AccessControl, Authorizer
from webservice.calls import HistoryFile, Startup
from webservice.config_view import deadlock_of
from webservice.cross_site import Cors
from webservice.service import Tls, listen, read_settings, serve
from webservice.tokens import KeyFile, TokenTerms


def host_and_port(text: str) -> tuple[str, int]:
    """Parse `HOST:PORT`; an IPv6 address needs brackets."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise argparse.ArgumentTypeError(f"{text!r}: write an IPv6 address in brackets, as in [::1]:9080")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT with a port from 0 to 65535")
    return host, int(port)


def acl(text: str) -> Acl:
    """Parse a list of users and groups, as in a queue's `adminacl`."""
    try:
        return parse_acl(text)
    except AclError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def words(text: str) -> tuple[str, ...]:
    """Parse a list separated by commas; an empty text is an empty list."""
    return tuple(text.split(",")) if text else ()


def options() -> argparse.ArgumentParser:
    """The parser of the command line."""
    described = parser("webservice", "Answer REST requests about all partitions.")
    add = described.add_argument
    add("--broker", required=True, metavar="ADDRESS", help="the broker's address, such as ipc://PATH")
    add(
        "--rest",
        required=True,
        type=host_and_port,
        metavar="HOST:PORT",
        help="listening address (port 0: any)",
    )
    add("--settings", metavar="FILE", help="JSON file of the settings in force, which GET /ws/v1/settings shows")
    add(
        "--scheduler-admins",
        type=acl,
        default="",
        metavar="ACL",
        help="scheduler administrators; without --auth, also the user who runs this process",
    )
    add("--tls-cert", metavar="FILE", help="certificate of the port, PEM (default: no TLS)")
    add("--tls-key", metavar="FILE", help="key of the certificate, PEM")
    add("--tls-client-ca", metavar="FILE", help="authority that signs client certificates, PEM")
    add("--audit", type=Path, metavar="FILE", help="audit log of changes (default: none)")
    add("--history", type=Path, metavar="FILE", help="file of the history (default: none)")
    add("--state", type=Path, metavar="DIR", help="state directory, whose free space the health check watches")
    add("--history-max", type=int, default=1 << 30, metavar="BYTES", help="size limit of the history")
    add(
        "--history-age",
        type=float,
        default=30 * 86400.0,
        metavar="SECONDS",
        help="age at which rows of the history are deleted",
    )
    add("--web-root", type=Path, metavar="DIR", help="directory with the files of a web UI to serve")
    add("--default-rm", default="", metavar="ID", help="RM whose partitions have their plain names")
    add("--debug", action="store_true", help="serve /debug/stack and /debug/pprof/")
    add(
        "--cors",
        type=words,
        default=(),
        metavar="ORIGINS",
        help="origins of other sites whose pages may use the API, or *",
    )
    add("--hosts", type=words, default=(), metavar="NAMES", help="names of this server, or *")
    add("--auth", type=words, default=(), metavar="WAYS", help="token, certificate, proxy")
    add("--auth-keys", type=Path, metavar="FILE", help="keys that sign tokens")
    add("--auth-issuer", default="", metavar="TEXT", help="required issuer of tokens (default: any)")
    add("--auth-audience", default="", metavar="TEXT", help="required audience of tokens (default: none)")
    add("--auth-proxy", type=words, default=(), metavar="NETWORKS", help="networks of trusted proxies")
    return described


def startup_of(args: argparse.Namespace) -> Startup:
    """The options that routes need.

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


def access_control_of(args: argparse.Namespace, users: LoopbackUsers) -> AccessControl:
    """Authentication, CORS and the audit log as the options say.

    Raises:
        OSError: in one line, with the reason.
    """
    authenticator = Authenticator(
        keys=_key_file(args.auth_keys) if TOKEN in args.auth else None,
        terms=TokenTerms(args.auth_issuer, args.auth_audience),
        certificates=CERTIFICATE in args.auth,
        proxies=tuple(map(ipaddress.ip_network, args.auth_proxy)) if PROXY in args.auth else (),
    )
    by_browser = authenticator.certificates or bool(authenticator.proxies)
    return AccessControl(
        Authorizer(
            users,
            authenticator,
            admins=args.scheduler_admins,
            origins=args.cors,
            hosts=(*args.hosts, args.rest[0].lower()),
        ),
        Cors(args.cors, is_open=authenticator.is_off, credentials=by_browser),
        AuditLog(args.audit) if args.audit else None,
    )


def _key_file(file: Path) -> KeyFile:
    try:
        return KeyFile(file)
    except TokenKeyError as error:
        raise OSError(f"{file}: {error}") from None


def run() -> int:
    """Run the process until it is told to stop. Returns the exit status."""
    args = options().parse_args()
    tls = Tls(args.tls_cert, args.tls_key, args.tls_client_ca) if args.tls_cert and args.tls_key else None

    async def start(life: Life) -> None:
        startup = startup_of(args)
        users = LoopbackUsers(args.scheduler_admins)
        control = access_control_of(args, users)
        listener = listen(*args.rest)
        await serve(
            life,
            broker=args.broker,
            listener=listener,
            users=users,
            startup=startup,
            control=control,
            tls=tls,
            heartbeat_s=args.heartbeat,
        )

    return main("webservice", args, start)


if __name__ == "__main__":
    sys.exit(run())
