"""REST requests about all partitions: `python -m webservice`."""

import ipaddress
import sys
from typing import Final

from common.acl import parse_acl
from common.names import WEBSERVICE
from common.process import Arguments, Life, main
from common.settings import Settings, host_and_port
from common.token_keys import TokenKeyError
from webservice.audit import AuditLog
from webservice.authn_authz import (
    CERTIFICATE,
    PROXY,
    TOKEN,
    AccessControl,
    Authenticator,
    Authorizer,
    KeyFile,
    LoopbackUsers,
)
from webservice.credentials import TokenTerms
from webservice.cross_site import Cors
from webservice.service import listen, serve

AUDIT: Final = "audit.log"
"""The audit log of changes, in the state directory."""


def make_access_control(settings: Settings, users: LoopbackUsers) -> AccessControl:
    """Make authentication, CORS and the audit log from the settings.

    Raises:
        OSError: in one line, with the reason.
    """
    authenticator = Authenticator(
        keys=_open_key_file(settings) if TOKEN in settings.auth else None,
        terms=TokenTerms(settings.auth_issuer, settings.auth_audience),
        certificates=CERTIFICATE in settings.auth,
        proxies=tuple(map(ipaddress.ip_network, settings.auth_proxy)) if PROXY in settings.auth else (),
    )
    by_browser = authenticator.certificates or bool(authenticator.proxies)
    hosts = (*settings.rest_hosts, host_and_port(settings.rest)[0].lower())
    admins = parse_acl(settings.scheduler_admins)
    return AccessControl(
        Authorizer(users, authenticator, admins=admins, origins=settings.cors, hosts=hosts),
        Cors(settings.cors, is_open=authenticator.is_off, credentials=by_browser),
        AuditLog(settings.state / AUDIT) if settings.state else None,
    )


def _open_key_file(settings: Settings) -> KeyFile:
    if settings.auth_keys is None:
        raise OSError("--auth-keys is missing")
    try:
        return KeyFile(settings.auth_keys)
    except TokenKeyError as error:
        raise OSError(f"{settings.auth_keys}: {error}") from None


async def start(arguments: Arguments, life: Life) -> None:
    """Run the process until it is stopped."""
    settings = arguments.settings
    users = LoopbackUsers(parse_acl(settings.scheduler_admins))
    listener = listen(*host_and_port(settings.rest))
    await serve(arguments, life, listener=listener, users=users, control=make_access_control(settings, users))


if __name__ == "__main__":
    sys.exit(main(WEBSERVICE, "Answer REST requests about all partitions.", start))
