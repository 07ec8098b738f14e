"""The keys of the native port: which files they are, and whether the port will be able to use them.

Not here: what is in such files (`common/curve_keys.py`, `common/curve_keys.py`), making them (`yunishard keys`).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from common.curve_keys import LIST_BYTES_MAX, AllowListError, KeyFileError, parse_allow_list, read_pair, server_file
from deploy.settings import Settings, reason_of
from deploy.values import Unusable

ALLOWED: Final = "allowed"
"""The allow-list beside the secret key, if nothing else is said."""


@dataclass(frozen=True, slots=True)
class NativeKeys:
    """What the port is given; never what is in the files."""

    secret: Path
    """File with the server's pair."""
    allowed: Path
    """File that says who may speak for which resource managers."""

    @property
    def arguments(self) -> tuple[str, ...]:
        """For the process that opens the port."""
        return ("--keys", str(self.secret), "--allowed-keys", str(self.allowed))


def native_keys(settings: Settings) -> NativeKeys | None:
    """The files, each looked at as the port will do it; None for a port without keys.

    Raises:
        Unusable: with the first that cannot be used.
    """
    if settings.native_keys is None:
        if settings.native_allowed is not None:
            raise Unusable(f"{settings.source('native-allowed')}: needs --native-keys too")
        return None
    secret = server_file(settings.native_keys)
    try:
        read_pair(secret)
    except KeyFileError as error:
        raise Unusable(f"{settings.source('native-keys')}: {error}") from None
    allowed = settings.native_allowed or secret.with_name(ALLOWED)
    source = settings.source("native-allowed")
    try:
        with allowed.open("rb") as opened:
            parse_allow_list(opened.read(LIST_BYTES_MAX).decode())
    except (OSError, UnicodeDecodeError) as error:
        advice = "`yunishard keys allow` makes one"
        raise Unusable(f"{source}: {allowed}: cannot be read: {reason_of(error)}; {advice}") from None
    except AllowListError as error:
        raise Unusable(f"{source}: {allowed}: {error}") from None
    return NativeKeys(secret, allowed)
