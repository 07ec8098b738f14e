"""The settings that only the web service needs: how people say who they are, whose pages may use it, what it keeps.

Not here: reading the texts from their sources (`settings.py`), ports and TLS, which all front ends have, and whether
the files can be used (`premises.py`).
"""

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from common.names import OFF
from deploy.options import CERTIFICATE, OPTIONS, PROXY, TOKEN, WAYS
from deploy.values import Given, Unusable, duration_s, path, rm_id, size_bytes, yes_no

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

ANY_ORIGIN: Final = "*"
ANY_HOST: Final = "*"

HISTORY_BYTES_MIN: Final = 16 * 1024**2
"""Less would hold a few hours of a small cluster only."""

HISTORY_AGE_MIN_S: Final = 3600.0
"""What is kept for less is not worth a file."""

_HOST: Final = re.compile(r"[a-z0-9_.-]+")
_ORIGIN: Final = re.compile(r"https?://(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(:[0-9]{1,5})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSettings:
    """Valid in themselves, and together."""

    auth: tuple[str, ...]
    """How people may say who they are, some of `WAYS` in their order; empty if nobody has to."""
    auth_keys: Path | None
    """Set with the way `token`, and only then."""
    auth_issuer: str
    """Of the tokens; empty for any."""
    auth_audience: str
    """Of the tokens; empty if they must have none."""
    auth_proxy: tuple[Network, ...]
    """Whose word about somebody counts; not empty with the way `proxy`, and only then."""
    cors: tuple[str, ...]
    """Origins of pages that may use the API, or `*`; empty if nothing was said."""
    hosts: tuple[str, ...]
    """Names of the REST port's host in lower case, or `*`; empty if nothing was said."""
    history: bool
    history_max_bytes: int
    history_age_s: float
    default_rm: str
    """RM whose partitions have their plain names; empty for those that registered first."""
    root: Path | None
    """Files of a web UI; None for none."""
    debug: bool


def web_settings(given: Mapping[str, Given]) -> WebSettings:
    """These settings out of all.

    Raises:
        Unusable: a value that is not valid, or without one that belongs to it.
    """
    auth = _auth(given["auth"])
    cors = _origins(given["cors"]) if "cors" in given else ()
    if auth and ANY_ORIGIN in cors:
        advice = "name the sites instead, as in https://ui.example"
        raise Unusable(
            f"{given['cors'].source}: * would let every page use what {given['auth'].source} protects; {advice}"
        )
    for way, name in ((TOKEN, "auth-keys"), (CERTIFICATE, "rest-tls-client-ca"), (PROXY, "auth-proxy")):
        if way in auth and name not in given:
            raise Unusable(f"{given['auth'].source}: {way} needs {OPTIONS[name].flag} too")
    for name, way in _BELONGS.items():
        if name in given and way not in auth:
            raise Unusable(f"{given[name].source}: needs --auth {way} too")
    return WebSettings(
        auth=auth,
        auth_keys=path(given["auth-keys"]) if "auth-keys" in given else None,
        auth_issuer=given["auth-issuer"].text if "auth-issuer" in given else "",
        auth_audience=given["auth-audience"].text if "auth-audience" in given else "",
        auth_proxy=_networks(given["auth-proxy"]) if "auth-proxy" in given else (),
        cors=cors,
        hosts=_hosts(given["rest-hosts"]) if "rest-hosts" in given else (),
        history=yes_no(given["history"]),
        history_max_bytes=size_bytes(given["history-max"], minimum=HISTORY_BYTES_MIN),
        history_age_s=_age_s(given["history-age"]),
        default_rm=rm_id(given["default-rm"], given["allowed-rms"]) if "default-rm" in given else "",
        root=path(given["web-root"]) if "web-root" in given else None,
        debug=yes_no(given["debug"]),
    )


_BELONGS: Final[Mapping[str, str]] = {
    "auth-keys": TOKEN,
    "auth-issuer": TOKEN,
    "auth-audience": TOKEN,
    "rest-tls-client-ca": CERTIFICATE,
    "auth-proxy": PROXY,
}
"""Settings that mean nothing without a way to say who one is: whoever gives them believes that it is on."""


def _auth(given: Given) -> tuple[str, ...]:
    if given.text == OFF:
        return ()
    found = _listed(given)
    if not set(found) <= set(WAYS):
        raise Unusable(f"{given.source}: expected {OFF}, or some of {', '.join(WAYS)}, got {given.text!r}")
    return tuple(way for way in WAYS if way in found)


def _networks(given: Given) -> tuple[Network, ...]:
    try:
        return tuple(ipaddress.ip_network(text) for text in _listed(given))
    except ValueError:
        example = "127.0.0.1,10.1.0.0/16"
        raise Unusable(f"{given.source}: expected addresses or networks, as in {example}, got {given.text!r}") from None


def _origins(given: Given) -> tuple[str, ...]:
    """As browsers write them: in lower case, without a path."""
    found = tuple(text.lower() for text in _listed(given))
    if found != (ANY_ORIGIN,) and not all(_ORIGIN.fullmatch(text) for text in found):
        raise Unusable(f"{given.source}: expected origins such as https://ui.example:8443, or *, got {given.text!r}")
    return found


def _hosts(given: Given) -> tuple[str, ...]:
    """As they are compared: in lower case, without a dot at the end."""
    found = tuple(text.lower().removesuffix(".") for text in _listed(given))
    if found != (ANY_HOST,) and not all(_HOST.fullmatch(text) for text in found):
        raise Unusable(
            f"{given.source}: expected host names without a port such as core.example, or *, got {given.text!r}"
        )
    return found


def _age_s(given: Given) -> float:
    found = duration_s(given)
    if found < HISTORY_AGE_MIN_S:
        raise Unusable(f"{given.source}: {given.text} is too short, {HISTORY_AGE_MIN_S / 3600:g}h is the least")
    return found


def _listed(given: Given) -> tuple[str, ...]:
    """What has commas between; blanks around it do not count."""
    return tuple(text.strip() for text in given.text.split(","))
