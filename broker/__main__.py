"""Routing, sessions and configurations: `python -m broker`."""

import sys

from broker.service import serve
from common.names import BROKER
from common.process import main

if __name__ == "__main__":
    sys.exit(main(BROKER, "Route messages, and hold sessions and configurations.", serve))
