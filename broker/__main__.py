"""Routing, sessions and configurations: `python -m yunishard.broker`."""

import sys

from yunishard.broker.service import serve
from yunishard.common.names import BROKER
from yunishard.common.process.main import main

if __name__ == "__main__":
    sys.exit(main(BROKER, "Route messages, and hold sessions and configurations.", serve))
