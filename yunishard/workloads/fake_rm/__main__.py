"""The fake RM of a system with simulated nodes: `python -m yunishard.workloads.fake_rm`."""

import sys

from yunishard.common.names import FAKE_RM
from yunishard.common.process.main import main
from yunishard.workloads.fake_rm.service import serve

if __name__ == "__main__":
    sys.exit(main(FAKE_RM, "Keep a system with simulated nodes from being empty.", serve))
