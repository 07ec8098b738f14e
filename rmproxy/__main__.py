"""The ports for resource managers: `python -m yunishard.rmproxy`."""

import sys

from yunishard.common.names import RMPROXY
from yunishard.common.process.main import main
from yunishard.rmproxy.service import serve

if __name__ == "__main__":
    sys.exit(main(RMPROXY, "Serve resource managers at the native port and the gRPC port.", serve))
