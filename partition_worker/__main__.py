"""The worker of one partition: `python -m partition_worker`."""

import sys

from common.names import WORKER
from common.process import main
from partition_worker.service import start

if __name__ == "__main__":
    sys.exit(main(WORKER, "Schedule one partition.", start))
