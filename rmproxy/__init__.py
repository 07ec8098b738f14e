"""The proxy: the ports that resource managers connect to.

What gRPC's library is told by way of the environment is said here, as it looks only when it is imported. Who sets these
variables otherwise has it his way.
"""

import os

# Its library would write into the log what clients send, byte for byte and as often as they like.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

# Whoever waits for calls then reads the connections, too. Otherwise what arrives passes two or three threads of the
# library first, which costs each request 0.1 to 0.2 ms where the machine is not busy.
os.environ.setdefault("GRPC_EXPERIMENTS", "-event_engine_listener")
