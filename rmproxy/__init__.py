"""The proxy: the ports that RMs connect to.

gRPC's library reads its settings from the environment when it is imported, so they are set here. Variables that an
operator has set stay.
"""

import os

# The library would otherwise log whatever clients send, as often as they send it.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

# The thread that waits for calls then also reads the connections. Otherwise each request passes two or three threads of
# the library first, which adds 0.1 to 0.2 ms where the machine is not busy.
os.environ.setdefault("GRPC_EXPERIMENTS", "-event_engine_listener")
