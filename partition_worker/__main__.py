"""The worker of one partition: `python -m partition_worker`."""

import sys

from common.names import WORKER
from common.process import Arguments, Life, main
from partition_worker.bootstrap import wait_for_assignment
from partition_worker.service import serve


async def start(arguments: Arguments, life: Life) -> None:
    """Serve the partition of the arguments, or the one that the supervisor assigns."""
    assignment = arguments.assignment or await wait_for_assignment(life)
    if assignment is not None:
        await serve(arguments, assignment, life)


if __name__ == "__main__":
    sys.exit(main(WORKER, "Schedule one partition.", start))
