"""`python -m rmproxy`: the ports that resource managers connect to."""

import sys

from common.process import main, parser
from rmproxy.proxy import SILENCE_S
from rmproxy.service import serve


def run() -> int:
    """Parse the options and serve; return the exit status."""
    options = parser("rmproxy", __doc__)
    options.add_argument("--broker", required=True, metavar="ADDRESS", help="where the broker listens, ipc://...")
    options.add_argument("--native", required=True, metavar="ADDRESS", help="native port, tcp://HOST:PORT or off")
    options.add_argument("--grpc", required=True, metavar="HOST:PORT", help="gRPC port, or off")
    options.add_argument(
        "--silence",
        type=float,
        default=SILENCE_S,
        metavar="SECONDS",
        help=f"resource managers that send nothing for so long count as away (default: {SILENCE_S:g})",
    )
    options.add_argument("--tls-cert", metavar="FILE", help="certificate of the gRPC port, PEM")
    options.add_argument("--tls-key", metavar="FILE", help="key of this certificate, PEM")
    options.add_argument("--tls-client-ca", metavar="FILE", help="CA that signs the certificates of gRPC clients, PEM")
    options.add_argument("--keys", metavar="DIR|FILE", help="secret key of the native port (default: none needed)")
    options.add_argument(
        "--memory-max",
        type=int,
        default=2 << 30,
        metavar="BYTES",
        help="memory above which the process restarts (default: 2 GiB)",
    )
    options.add_argument(
        "--allowed-keys", metavar="FILE", help="allow-list of client keys and their RM ids, with --keys"
    )
    args = options.parse_args()
    return main("rmproxy", args, lambda life: serve(args, life))


if __name__ == "__main__":
    sys.exit(run())
