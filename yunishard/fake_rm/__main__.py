"""The fake RM of a system with simulated nodes: `python -m yunishard.fake_rm`."""

import sys

from common.names import FAKE_RM
from common.process import main
from yunishard.fake_rm.service import serve

if __name__ == "__main__":
    sys.exit(main(FAKE_RM, "Keep a system with simulated nodes from being empty.", serve))
