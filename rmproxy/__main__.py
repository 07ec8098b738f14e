"""`python -m rmproxy`: the ports that resource managers connect to."""

import sys

from common.process import main, parser
from rmproxy.service import serve


def run() -> int:
    """Start, serve, stop; the exit status."""
    options = parser("rmproxy", __doc__)
    options.add_argument("--broker", required=True, metavar="ADDRESS", help="where the broker listens, ipc://...")
    options.add_argument("--native", required=True, metavar="ADDRESS", help="native port, tcp://HOST:PORT")
    options.add_argument("--grpc", required=True, metavar="HOST:PORT", help="gRPC port")
    options.add_argument("--tls-cert", metavar="FILE", help="certificate of the gRPC port, PEM")
    options.add_argument("--tls-key", metavar="FILE", help="its key, PEM")
    options.add_argument("--tls-client-ca", metavar="FILE", help="who signs the certificates of gRPC clients, PEM")
    args = options.parse_args()
    return main("rmproxy", args, lambda life: serve(args, life))


if __name__ == "__main__":
    sys.exit(run())
