"""`python -m webservice --broker ADDRESS --rest HOST:PORT`: the front end for people, browsers and Prometheus."""

import argparse
import sys

from common.process import main, parser
from webservice.service import listen, serve


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


def run() -> int:
    """Start, serve, stop; the exit status."""
    options = parser("webservice", "Answer REST requests about all partitions.")
    options.add_argument("--broker", required=True, metavar="ADDRESS", help="the broker's address, such as ipc://PATH")
    options.add_argument("--rest", required=True, type=host_and_port, metavar="HOST:PORT", help="port 0 means any")
    args = options.parse_args()
    return main("webservice", args, lambda life: serve(life, broker=args.broker, listener=listen(*args.rest)))


if __name__ == "__main__":
    sys.exit(run())
