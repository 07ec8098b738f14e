"""The ports for resource managers: `python -m rmproxy`."""

import sys

from common.names import RMPROXY
from common.process import main
from rmproxy.service import serve

if __name__ == "__main__":
    sys.exit(main(RMPROXY, "Serve resource managers at the native port and the gRPC port.", serve))
