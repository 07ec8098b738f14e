"""Checks before anything starts: configuration, plug-ins, TLS files, keys, file descriptors, exposed ports, the state
directory, and free ports.

Each check uses the real thing. An error is one line that names the setting and the remedy.

Not here: the sources of settings (`settings.py`), the state directory (`state_directory.py`).
"""

import errno
import logging
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import entry_points
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from yunishard.common.config.placement_rules import find_rule_problems
from yunishard.common.config.problems import ConfigError, Problem
from yunishard.common.config.validation import find_build_problems, find_hierarchy_problems, load
from yunishard.common.names import OFF, PREDICATE_PLUGINS
from yunishard.common.process.limits import raise_descriptor_limit
from yunishard.common.settings import Settings, TlsPaths, encode_settings, host_and_port, replace_settings
from yunishard.common.text_formats import describe_file_error, format_count
from yunishard.common.transport import curve_keys
from yunishard.common.transport.cluster_connection import is_ip
from yunishard.common.transport.token_keys import TokenKeyError, read_token_keys
from yunishard.deploy.settings import PORTS
from yunishard.deploy.state_directory import StateDirectory, claim_state_directory

DESCRIPTORS_FIXED: Final = 256
"""File descriptors that a process may need for any number of partitions: libraries, files, connections of a few
clients, and the reserve of `common/process/limits.py`."""

DESCRIPTORS_PER_PARTITION: Final = 3
"""File descriptors that the supervisor and the broker may need for each partition: a lifeline or a connection for its
worker, the same for the worker that replaces it, and one to wait for its end."""

_log = logging.getLogger("core.supervisor")


@contextmanager
def prepare(settings: Settings) -> Iterator[tuple[Settings, StateDirectory]]:
    """Check everything, claim the state directory, and write the file of the settings. Yields the settings of the
    processes, with the state directory in use, and that directory.

    Raises:
        SettingsError: the first problem.
    """
    _check_config(settings)
    _check_predicates(settings)
    _check_tls(settings, "grpc", settings.grpc_tls)
    _check_tls(settings, "rest", settings.rest_tls)
    _check_token_keys(settings)
    if settings.web_root is not None and not settings.web_root.is_dir():
        raise settings.error("web-root", f"{settings.web_root}: is no directory; give the one with the UI's index.html")
    _check_descriptors(settings)
    check_native_keys(settings)
    check_cluster_keys(settings)
    check_exposure(settings)
    with ExitStack() as stack:
        state = claim_state_directory(settings, stack)
        _check_store(settings)
        _check_ports(settings)  # after the lock: the processes of a killed supervisor held ports, too
        settings = replace_settings(settings, {"state": state.folder})
        try:
            state.settings.write_bytes(encode_settings(settings))
        except OSError as error:
            reason = f"{state.settings}: cannot be written: {describe_file_error(error)}"
            raise settings.error("state", reason) from None
        yield settings, state


def _check_config(settings: Settings) -> None:
    if settings.config is None:
        return
    try:
        configuration = load(settings.config.read_text(encoding="utf-8"))
        problems: list[Problem] = []
        for partition in configuration.partitions:
            problems += [*find_build_problems(partition), *find_rule_problems(partition)]
        problems += find_hierarchy_problems(configuration) if settings.same_hierarchy == "enforce" else []
    except (OSError, UnicodeDecodeError) as error:
        reason = f"cannot be read: {describe_file_error(error)}; leave it out for the built-in queues"
        raise settings.error("config", f"{settings.config}: {reason}") from None
    except ConfigError as error:
        problems = list(error.problems)
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        text = f"{' '.join(str(problems[0]).split())}{more}; correct it (`yunishard validate` lists all problems)"
        raise settings.error("config", f"{settings.config}: {text}")


def _check_predicates(settings: Settings) -> None:
    """Check that plug-ins are installed. A worker that cannot load one reports so itself."""
    there = {point.name for point in entry_points(group=PREDICATE_PLUGINS)} if settings.predicates else set()
    for name in settings.predicates:
        if name not in there:
            known = ", ".join(sorted(there)) or "none"
            raise settings.error("predicates", f"no plug-in {name!r} is installed; there are: {known}")


def _check_store(settings: Settings) -> None:
    if settings.store:
        try:
            from yunishard.common.postgres.connection import (
                check_store,  # needs a library that other systems do not have
            )

            _log.info("the store is %s", check_store(settings.store))
        except OSError as error:
            raise settings.error("store", str(error)) from None


def _check_token_keys(settings: Settings) -> None:
    file = settings.auth_keys
    try:
        if file is not None:
            read_token_keys(file)
    except TokenKeyError as error:
        raise settings.error("auth-keys", f"{file}: {error}; `yunishard token --new-key` makes one") from None


def _check_descriptors(settings: Settings) -> None:
    """Raise the limit, which the processes inherit, and check that it is enough for all partitions. The default of
    `partitions-max` is more than most systems use, so for it this is only a warning.
    """
    available = raise_descriptor_limit()
    needed = count_descriptors(settings.partitions_max + settings.spare_workers)
    if needed <= available:
        return
    fitting = (available - count_descriptors(settings.spare_workers)) // DESCRIPTORS_PER_PARTITION
    lower = f", or choose at most {format_count(fitting, 'partition')}" if fitting > 0 else ""
    partitions = format_count(settings.partitions_max, "partition")
    problem = settings.error(
        "partitions-max",
        f"{partitions} may need {needed} file descriptors in one process, and the hard limit is {available}; raise it "
        f"(`ulimit -Hn`, LimitNOFILE= of a systemd unit, `--ulimit nofile=` of a container){lower}",
    )
    if not settings.is_default("partitions-max"):
        raise problem
    _log.warning("%s", problem)


def count_descriptors(workers: int) -> int:
    """The file descriptors that a process may need in a system with so many workers."""
    return DESCRIPTORS_FIXED + DESCRIPTORS_PER_PARTITION * workers


# TLS and keys ---------------------------------------------------------------------------------------------------------


def _check_tls(settings: Settings, port: str, tls: TlsPaths | None) -> None:
    """Load the files as the port will."""
    if tls is None:
        return
    for part, file in (("cert", tls.cert), ("key", tls.key), ("client-ca", tls.client_ca)):
        try:
            is_encrypted = file is not None and b"ENCRYPTED" in file.read_bytes()
        except OSError as error:
            reason = f"{file}: cannot be read: {describe_file_error(error)}"
            raise settings.error(f"{port}-tls-{part}", reason) from None
        if is_encrypted:
            raise settings.error(f"{port}-tls-{part}", f"{file}: has a password; give a key without one")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    key = f"{tls.key} ({settings.origin(f'{port}-tls-key')})"
    try:
        context.load_cert_chain(tls.cert, tls.key)
    except ssl.SSLError as error:
        reason = f"{tls.cert} and {key} are no certificate and key in PEM form"
        if error.reason == "KEY_VALUES_MISMATCH":
            reason = f"{tls.cert}: does not belong to the key {key}"
        raise settings.error(f"{port}-tls-cert", reason) from None
    try:
        if tls.client_ca is not None:
            context.load_verify_locations(tls.client_ca)
    except ssl.SSLError:
        reason = f"{tls.client_ca}: holds no certificate in PEM form"
        raise settings.error(f"{port}-tls-client-ca", reason) from None


def check_native_keys(settings: Settings) -> None:
    """Read the files of the native port's keys as the port will.

    Raises:
        SettingsError: the first one that cannot be used.
    """
    if settings.native_keys is None:
        if settings.native_allowed is not None:
            raise settings.error("native-allowed", "needs --native-keys too")
        return
    secret = curve_keys.server_file(settings.native_keys)
    try:
        curve_keys.read_pair(secret)
    except curve_keys.KeyFileError as error:
        raise settings.error("native-keys", str(error)) from None
    allowed = settings.native_allowed or secret.with_name(curve_keys.ALLOWED)
    _check_allow_list(settings, "native-allowed", allowed, "`yunishard keys allow` makes one")


def check_cluster_keys(settings: Settings) -> None:
    """Read the keys of the connections between hosts as the broker's port will.

    Raises:
        SettingsError: the first file that cannot be used, or this host's key is not in its own list: then the list is
            probably not the present one, and other hosts do not let this one in.
    """
    folder = settings.cluster_keys
    if folder is None:
        return
    secret, remedy = curve_keys.host_file(folder), "`yunishard cluster init` makes the keys of all hosts"
    try:
        pair = curve_keys.read_pair(secret)
    except curve_keys.KeyFileError as error:
        raise settings.error("cluster-keys", f"{error}; {remedy}") from None
    allowed = folder / curve_keys.ALLOWED
    if pair.public not in _check_allow_list(settings, "cluster-keys", allowed, remedy):
        reason = f"key {curve_keys.fingerprint(pair.public)} in {secret} is not in {allowed}"
        raise settings.error("cluster-keys", f"{reason}; copy both to this host again (`yunishard cluster --help`)")


def _check_allow_list(settings: Settings, name: str, file: Path, remedy: str) -> curve_keys.AllowList:
    try:
        return curve_keys.parse_allow_list(curve_keys.read_allow_list(file))
    except OSError as error:
        raise settings.error(name, f"{file}: cannot be read: {describe_file_error(error)}; {remedy}") from None
    except curve_keys.AllowListError as error:
        raise settings.error(name, f"{file}: {error}") from None


# Ports ----------------------------------------------------------------------------------------------------------------


def _open_ports(settings: Settings) -> dict[str, str]:
    """The addresses of the ports that are not off, by setting."""
    addresses = zip(PORTS, (settings.native, settings.grpc, settings.rest), strict=True)
    return {port: address for port, address in addresses if address != OFF}


def _check_ports(settings: Settings) -> None:
    """Listen on each port for a moment."""
    taken: dict[tuple[str, int], str] = {}
    with ExitStack() as stack:
        for port, address in _open_ports(settings).items():
            host, number = host_and_port(address)
            if number and (host, number) in taken:
                raise settings.error(port, f"{address}: {taken[host, number]} has the same; give each its own")
            taken[host, number] = settings.origin(port)
            try:
                _listen(host, number, stack)
            except OSError as error:
                advice = _advise(error, example=f"--{port} {address.rpartition(':')[0]}:0")
                raise settings.error(port, f"{address}: {describe_file_error(error)}; {advice}") from None
        _check_cluster_address(settings, stack)


def _check_cluster_address(settings: Settings, stack: ExitStack) -> None:
    """Listen for a moment at the address that other hosts use: it has to be one address of this machine."""
    address = settings.cluster_address
    if address == OFF:
        return
    host, number = host_and_port(address)
    try:
        if not number or (is_ip(host) and ip_address(host).is_unspecified):
            what = "port 0" if not number else f"{host} as address"
            raise settings.error("cluster-address", f"{address}: no other host can connect to {what}; give a real one")
        _listen(host, number, stack)
    except OSError as error:
        remedy = "give an address of this machine that the other hosts reach"
        if error.errno == errno.EADDRINUSE:
            remedy = "stop what listens there, or choose another port"
        raise settings.error("cluster-address", f"{address}: {describe_file_error(error)}; {remedy}") from None


def _advise(error: OSError, *, example: str) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"stop what listens there, or choose another port ({example} takes any free one)"
    if error.errno == errno.EACCES:
        return f"choose a port from 1024 on ({example} takes any free one)"
    return "give an address of this machine" + ("" if isinstance(error, socket.gaierror) else ", such as 127.0.0.1")


def _listen(host: str, port: int, stack: ExitStack) -> None:
    """Listen on every address of the host, except those that the machine does not have."""
    absent: list[OSError] = []
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    for family, kind, protocol, _, where in found:
        try:
            listener = stack.enter_context(socket.socket(family, kind, protocol))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the processes do
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind(where)
            listener.listen(1)
        except OSError as error:
            if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                raise
            absent.append(error)
    if len(absent) == len(found):
        raise absent[0]


def _is_loopback(address: str) -> bool:
    """Whether only this machine can reach the address. No client reaches a host that is not found."""
    host, port = host_and_port(address)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return True
    return all(ip_address(str(where[0]).partition("%")[0]).is_loopback for *_, where in found)


# Exposed ports --------------------------------------------------------------------------------------------------------

_ADVICE: Final = {
    "native": "give it keys (--native-keys, see `yunishard keys --help`) or an address such as 127.0.0.1",
    "grpc": "give it a certificate (--grpc-tls-cert, --grpc-tls-key) or an address such as 127.0.0.1",
    "rest": "give it a certificate (--rest-tls-cert, --rest-tls-key) or an address such as 127.0.0.1",
}


def check_exposure(settings: Settings) -> None:
    """Check that other machines can reach an unsecured port only with `insecure`.

    Raises:
        SettingsError: the first port that is exposed.
    """
    secured = {"native": settings.native_keys, "grpc": settings.grpc_tls, "rest": settings.rest_tls}
    for port, address in _open_ports(settings).items():
        if not settings.insecure and secured[port] is None and not _is_loopback(address):
            problem = f"{address}: is not secured, and other machines can reach it"
            raise settings.error(port, f"{problem}; {_ADVICE[port]}, or use --insecure if you trust the network")


def find_warnings(settings: Settings) -> list[str]:
    """Describe settings that are valid but probably unintended, with the remedy."""
    found = [*_find_rm_port_warnings(settings), *_find_rest_warnings(settings)]
    if settings.auth and not settings.scheduler_admins:
        found.append(
            f"{settings.origin('auth')}: no user is a scheduler administrator, so no user may change configurations "
            "over REST; name some with --scheduler-admins 'user,user group,group'"
        )
    return found


def _find_rm_port_warnings(settings: Settings) -> Iterator[str]:
    """Yield ports at which a client can take the id of an RM with less proof than at the other one, or with none."""
    native, grpc = settings.native, settings.grpc
    if native == grpc == OFF:
        yield (
            f"{settings.origin('native')}, {settings.origin('grpc')}: both are off, so no resource manager can register"
        )
    has_keys = settings.native_keys is not None
    has_certificates = settings.grpc_tls is not None and settings.grpc_tls.client_ca is not None
    if native != OFF and not has_keys:
        where = f"{settings.origin('native')}: {native}"
        if grpc != OFF and has_certificates:
            yield (
                f"{where}: a client without a key can take any RM id here, also one that has a certificate for gRPC; "
                "give the port keys (--native-keys) or close it (--native off)"
            )
        elif not _is_loopback(native):
            yield f"{where}: a client on the network can take any RM id; give the port keys (--native-keys)"
    if grpc != OFF and not has_certificates:
        where = f"{settings.origin('grpc')}: {grpc}"
        if has_keys:
            yield (
                f"{where}: a client without a certificate can take any RM id that has no native key; ask for "
                "certificates (--grpc-tls-client-ca) or close the port (--grpc off)"
            )
        elif not _is_loopback(grpc):
            yield f"{where}: a client on the network can take any RM id; ask for certificates (--grpc-tls-client-ca)"


def _find_rest_warnings(settings: Settings) -> Iterator[str]:
    if settings.rest == OFF or settings.auth:
        return
    where = f"{settings.origin('rest')}: {settings.rest}"
    if not _is_loopback(settings.rest):
        yield (
            f"{where}: any client that reaches this port may read all of it: queues, applications, users, "
            "configurations; --auth makes clients authenticate (docs/security.md)"
        )
    elif settings.native_keys is not None or settings.grpc_tls_client_ca is not None:
        yield (
            f"{where}: resource managers need keys or certificates, but every user of this machine may read all of "
            "this port; --auth makes clients authenticate (docs/security.md), --rest off closes it"
        )
