"""Authorization of gRPC callers: which RM ids a caller may act for.

A caller proves its identity with a client certificate, or not at all. An RM id that has a key of the native port needs
a certificate for that id over gRPC, so that no port grants more than another one for a weaker proof. Other RM ids need
a certificate only where the port asks for one.

Not here: reading certificates (`grpc_tls.py`), the allow-list of native keys (`doorkeeper.py`).
"""

from collections.abc import Callable

from rmproxy import grpc_endings as endings
from rmproxy.grpc_endings import EndedError


def no_native_keys(_: str) -> bool:
    """Report that the RM has no native key: the native port takes connections without keys, or is off."""
    return False


class Authorizer:
    """Decides for each call and stream; asks `has_native_key` each time, as keys change while the proxy runs."""

    def __init__(self, has_native_key: Callable[[str], bool] = no_native_keys) -> None:
        self._has_native_key = has_native_key

    def check(self, rm_id: str, certified: tuple[str, ...] | None) -> None:
        """Check that a caller may act for this RM; `certified` are the RM ids in its certificate, None without one.

        Raises:
            EndedError: it may not.
        """
        if certified is None:
            if self._has_native_key(rm_id):
                raise EndedError(endings.key_required(rm_id))
        elif rm_id not in certified:
            raise EndedError(endings.not_permitted(rm_id, certified))
