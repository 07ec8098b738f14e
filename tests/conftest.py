"""What holds for all tests."""

import os

# Tests start processes, and some of them have used gRPC before. Its fork handlers would break the child between fork
# and exec; nothing here forks without exec, so they are not needed.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
