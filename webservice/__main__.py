"""`python -m webservice --broker ADDRESS --rest HOST:PORT`: the front end for people, browsers and Prometheus."""

import argparse
import os
import sys

from common.acl import Acl, AclError, parse_acl
from common.process import Life, main, parser
from webservice.calls import Startup
from webservice.config_view import deadlock_of
from webservice.people import People
from webservice.service import listen, read_settings, serve


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


def run() -> int:
    """Start, serve, stop; the exit status."""
    options = parser("webservice", "Answer REST requests about all partitions.")
    options.add_argument("--broker", required=True, metavar="ADDRESS", help="the broker's address, such as ipc://PATH")
    options.add_argument("--rest", required=True, type=host_and_port, metavar="HOST:PORT", help="port 0 means any")
    options.add_argument("--settings", metavar="FILE", help="the settings in force, as JSON, to show them")
    options.add_argument(
        "--scheduler-admins", type=acl, default="", metavar="ACL", help="besides the user who runs this"
    )
    options.add_argument("--tls-cert", metavar="FILE", help="certificate of the port, PEM; without one no TLS")
    options.add_argument("--tls-key", metavar="FILE", help="its key, PEM")
    args = options.parse_args()
    tls = (args.tls_cert, args.tls_key) if args.tls_cert and args.tls_key else None

    async def start(life: Life) -> None:
        startup = Startup(read_settings(args.settings or ""), deadlock_of(os.environ))
        people = People(args.scheduler_admins)
        listener = listen(*args.rest)
        await serve(
            life,
            broker=args.broker,
            listener=listener,
            people=people,
            startup=startup,
            tls=tls,
            heartbeat_s=args.heartbeat,
        )

    return main("webservice", args, start)


if __name__ == "__main__":
    sys.exit(run())
