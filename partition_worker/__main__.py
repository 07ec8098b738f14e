"""A worker, which serves one partition: `python -m partition_worker`."""

import sys

from common.names import WORKER
from common.process import main
from partition_worker.service import serve

if __name__ == "__main__":
    sys.exit(main(WORKER, "Schedule one partition.", serve))
