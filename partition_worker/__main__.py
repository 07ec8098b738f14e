"""A worker, which serves one partition: `python -m yunishard.partition_worker`."""

import sys

from yunishard.common.names import WORKER
from yunishard.common.process.main import main
from yunishard.partition_worker.service import serve

if __name__ == "__main__":
    sys.exit(main(WORKER, "Schedule one partition.", serve))
