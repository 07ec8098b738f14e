"""The proxy: the ports that resource managers connect to."""

import os

# Said before gRPC is imported, as it looks only then: its library would write into the log what clients send, byte for
# byte and as often as they like.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
