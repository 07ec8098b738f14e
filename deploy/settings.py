"""Read the settings of `yunishard up` from their sources, and check settings that depend on each other.

The command line overrides the environment, the environment overrides the settings file, and all override the
defaults. Every text is kept with its origin, so that an error names the place to change. An empty text counts as not
given (`YUNISHARD_CONFIG=` in a compose file). Paths in a settings file are relative to that file.

Not here: the table of settings (`common/settings.py`), and whether ports are free and files usable (`preflight.py`).
"""

from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Final

import yaml

from yunishard.common import settings as table
from yunishard.common.names import OFF, STAND_IN_RM, compile_rm_ids
from yunishard.common.settings import SETTINGS, EffectiveSetting, Settings, SettingsError, parse_setting
from yunishard.common.text_formats import describe_file_error

SETTINGS_FILE: Final = "settings"
"""`--settings` and YUNISHARD_SETTINGS name the settings file; it is not a setting itself."""

HEARTBEATS_MISSED: Final = 2
"""At least as many heartbeats fit into each timeout."""

PORTS: Final = ("native", "grpc", "rest")


def resolve_settings(flags: Mapping[str, str], environment: Mapping[str, str], file: str | None = None) -> Settings:
    """Return all settings from all sources.

    Args:
        flags: The settings on the command line, by name.
        environment: The environment variables.
        file: The settings file that the command line names.

    Raises:
        SettingsError: a value is invalid, the settings file cannot be read, or settings contradict each other.
    """
    sources = _list_sources(flags, environment, file)
    layers = ChainMap(*({one.name: one for one in source if one.value} for source in sources))
    given = {**layers, **_choose_state(layers, environment)}
    values: dict[str, object] = {}
    for name, row in SETTINGS.items():
        one = given.setdefault(name, EffectiveSetting(name, "", table.DEFAULT, row.flag))
        value = values[row.attribute] = parse_setting(name, one.value, one.origin)
        given[name] = one._replace(value=str(value) if isinstance(value, Path) else one.value)
    settings = table.replace_settings(Settings(), {**values, "effective": tuple(given[name] for name in SETTINGS)})
    _check_ports(settings)
    _check_tls(settings)
    _check_times(settings)
    _check_cluster(settings)
    _check_auth(settings)
    _check_simulation(settings)
    _check_journal_history(settings)
    if settings.default_rm and not compile_rm_ids(settings.allowed_rms).fullmatch(settings.default_rm):
        allowed = settings.origin("allowed-rms")
        raise settings.error("default-rm", f"{settings.default_rm!r} may not register: {allowed} does not name it")
    return settings


# Sources --------------------------------------------------------------------------------------------------------------


def _list_sources(
    flags: Mapping[str, str], environment: Mapping[str, str], file: str | None
) -> Iterator[Iterable[EffectiveSetting]]:
    """Yield the settings of each source, the source that wins first. An empty text counts as not given."""
    rows = SETTINGS.values()
    yield (EffectiveSetting(row.name, flags.get(row.name, ""), row.flag, row.flag) for row in rows)
    yield (EffectiveSetting(row.name, environment.get(row.variable, ""), row.variable, row.variable) for row in rows)
    variable = f"{_PREFIX}{SETTINGS_FILE.upper()}"
    if path := file or environment.get(variable):
        yield _read_file(Path(path), f"--{SETTINGS_FILE}" if file else variable)
    yield (EffectiveSetting(row.name, row.default, table.DEFAULT, row.flag) for row in rows)


def _read_file(file: Path, origin: str) -> Iterator[EffectiveSetting]:
    try:
        # Composed, not loaded: `on`, `3333` and `~` stay the text in the file, and each has its line.
        document = yaml.compose(file.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{origin} {file}: cannot be read: {describe_file_error(error)}") from None
    except yaml.YAMLError as error:
        raise SettingsError(f"{origin} {file}: not valid YAML: {' '.join(str(error).split())}") from None
    if document is None or (isinstance(document, yaml.ScalarNode) and not document.value):
        return
    if not isinstance(document, yaml.MappingNode):
        raise SettingsError(f"{origin} {file}: expected lines such as `native: {SETTINGS['native'].default}`")
    seen: set[str] = set()
    for key, value in document.value:
        name = key.value if isinstance(key, yaml.ScalarNode) else "?"
        if name not in SETTINGS:
            near = get_close_matches(name, SETTINGS, n=1, cutoff=0.7)
            advice = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(SETTINGS)}"
            raise SettingsError(f"{origin} {file}: unknown setting {name!r}; {advice}")
        if name in seen:
            raise SettingsError(f"{name} in {file}: it is there twice, again in line {key.start_mark.line + 1}")
        if not isinstance(value, yaml.ScalarNode):
            raise SettingsError(f"{name} in {file}: expected one value, got a list or a map")
        seen.add(name)
        text = value.value
        if text and SETTINGS[name].kind in (table.FILE, table.DIR) and not text.startswith("~"):
            text = str(file.absolute().parent / text)
        yield EffectiveSetting(name, text, f"{file}:{key.start_mark.line + 1}", f"{name} in {file}")


_OTHER_VARIABLES: Final = ("YUNISHARD_SETTINGS", "YUNISHARD_KEYS", "YUNISHARD_TOKEN_FILE", "YUNISHARD_URL")
_KNOWN: Final = (*(setting.variable for setting in SETTINGS.values()), *_OTHER_VARIABLES)
"""All variables that `up`, the commands and the SDK read."""

_PREFIX: Final = "YUNISHARD_"


def find_unknown_variables(names: Iterable[str]) -> list[str]:
    """Return a warning for each variable that looks like a setting but is not one, with the nearest known name. Those
    that Kubernetes sets for services are among them; our pods have `enableServiceLinks: false`.
    """
    lines = []
    known = [one.removeprefix(_PREFIX) for one in _KNOWN]
    for name in sorted(name for name in names if name.startswith(_PREFIX) and name not in _KNOWN):
        near = get_close_matches(name.removeprefix(_PREFIX), known, n=1, cutoff=0.7)
        advice = f"did you mean {_PREFIX}{near[0]}?" if near else "`yunishard up --help` lists the settings"
        lines.append(f"{name} in the environment is unknown and ignored; {advice}")
    return lines


# Settings that depend on each other -----------------------------------------------------------------------------------


def _choose_state(given: ChainMap[str, EffectiveSetting], variables: Mapping[str, str]) -> dict[str, EffectiveSetting]:
    """Decide between `state` and `ephemeral`: the one with the stronger source wins. Simulated nodes end with the
    system, so with them it is ephemeral unless a source names a directory, which `_check_simulation` refuses.
    """
    simulated = given["simulated-nodes"]
    if parse_setting("simulated-nodes", simulated.value, simulated.origin) and "state" not in given:
        ephemeral = simulated._replace(name="ephemeral", value="true")
        return {"state": ephemeral._replace(name="state", value=""), "ephemeral": ephemeral}
    strongest = next(one for one in given.maps if "state" in one or "ephemeral" in one)
    ephemeral = given["ephemeral"]
    if not parse_setting("ephemeral", ephemeral.value, ephemeral.origin) or "ephemeral" not in strongest:
        state = given.get("state") or _find_default_state(variables)
        return {"state": state, "ephemeral": ephemeral._replace(value="false")}
    if "state" in strongest:
        raise SettingsError(f"{ephemeral.origin} and {strongest['state'].origin} exclude each other: leave one out")
    return {"state": ephemeral._replace(name="state", value=""), "ephemeral": ephemeral._replace(value="true")}


def _find_default_state(variables: Mapping[str, str]) -> EffectiveSetting:
    """Return the per-user directory of the XDG base directory specification, which ignores relative paths."""
    folder = Path(variables.get("XDG_STATE_HOME", ""))
    if not folder.is_absolute():
        try:
            folder = Path.home() / ".local" / "state"
        except RuntimeError:
            raise SettingsError("--state: your home directory is unknown: set HOME, or choose a directory") from None
    return EffectiveSetting("state", str(folder / "yunishard"), table.DEFAULT, "--state")


def _check_times(settings: Settings) -> None:
    """Check that each timeout allows for a lost heartbeat."""
    text = {one.name: one.value for one in settings.effective}
    least_s = HEARTBEATS_MISSED * settings.heartbeat_s
    for name, timeout_s in (("silence", settings.silence_s), ("lease-timeout", settings.lease_timeout_s)):
        if timeout_s < least_s:
            heartbeat = f"a heartbeat of {text['heartbeat']} ({settings.origin('heartbeat')})"
            raise settings.error(name, f"{text[name]} is too short: with {heartbeat} it takes at least {least_s:g}s")


def _check_ports(settings: Settings) -> None:
    """Check that a port is open, and that there are no keys for a native port that is off."""
    if settings.native == settings.grpc == settings.rest == OFF:
        origins = ", ".join(map(settings.origin, PORTS))
        raise SettingsError(f"{origins}: all ports are {OFF}, so nothing could reach the system; leave one open")
    for name, path in (("native-keys", settings.native_keys), ("native-allowed", settings.native_allowed)):
        if settings.native == OFF and path is not None:
            native = f"the native port is {OFF} ({settings.origin('native')})"
            raise settings.error(name, f"protects nothing while {native}; leave one of the two out")


def _check_cluster(settings: Settings) -> None:
    """Check that a host of several has all of their settings."""
    needed = {"store": settings.store, "host-name": not settings.is_default("host-name")}
    if settings.cluster_address == OFF:
        if settings.cluster_keys is not None:
            raise settings.error("cluster-keys", "needs --cluster-address too")
        return
    for name, is_given in {**needed, "cluster-keys": settings.cluster_keys}.items():
        if not is_given:
            raise settings.error("cluster-address", f"needs --{name} too")


def _check_tls(settings: Settings) -> None:
    """Check that certificate and key come together, and client CAs with both."""
    for port, cert, key, client_ca in (
        ("grpc", settings.grpc_tls_cert, settings.grpc_tls_key, settings.grpc_tls_client_ca),
        ("rest", settings.rest_tls_cert, settings.rest_tls_key, settings.rest_tls_client_ca),
    ):
        if (cert or key or client_ca) and not (cert and key):
            given = "cert" if cert else "key" if key else "client-ca"
            missing = "key" if cert else "cert"
            raise settings.error(f"{port}-tls-{given}", f"needs --{port}-tls-{missing} too")


def _check_simulation(settings: Settings) -> None:
    """Check that simulated nodes mix with no real cluster, and that the built-in RM can register."""
    if not settings.simulated_nodes:
        for name in ("node-resources", "simulated-load"):
            if not settings.is_default(name):
                raise settings.error(name, "needs --simulated-nodes too")
        return
    if not settings.ephemeral:
        state = settings.origin("state")
        raise settings.error("simulated-nodes", f"they end with the system, so leave out {state}, or add --ephemeral")
    for name, is_given, reason in (
        ("store", settings.store, "simulated nodes end with the system, and the store keeps them"),
        ("native", settings.native == OFF, f"the built-in RM {STAND_IN_RM!r} of the simulated nodes needs this port"),
        ("native-keys", settings.native_keys, f"the built-in RM {STAND_IN_RM!r} of the simulated nodes has no key"),
        (
            "allowed-rms",
            not compile_rm_ids(settings.allowed_rms).fullmatch(STAND_IN_RM),
            f"the built-in RM {STAND_IN_RM!r} of the simulated nodes must be allowed, too",
        ),
    ):
        if is_given:
            raise settings.error(name, f"{reason}; leave out {settings.origin('simulated-nodes')}, or this")


def _check_journal_history(settings: Settings) -> None:
    """Check that earlier changes have a journal that holds them."""
    if not settings.journal_history_bytes:
        return
    if settings.store:
        reason = f"earlier changes are kept in journals in files, and {settings.origin('store')} has no such journals"
        raise settings.error("journal-history", f"{reason}; leave one of the two out")
    if settings.journal_history_bytes >= settings.journal_max_bytes:
        text = {one.name: one.value for one in settings.effective}
        limit = f"{text['journal-max']} ({settings.origin('journal-max')})"
        reason = f"is not less than the whole journal, {limit}, which deletes all of it when it is full"
        raise settings.error("journal-history", f"{text['journal-history']} {reason}")


def _check_auth(settings: Settings) -> None:
    """Check that each method of authentication has its settings, and each such setting its method."""
    if settings.auth and table.ANY in settings.cors:
        problem = f"* would let every page use what {settings.origin('auth')} protects"
        raise settings.error("cors", f"{problem}; name the sites instead, as in https://ui.example")
    for method, name, is_required in (
        (table.TOKEN, "auth-keys", True),
        (table.TOKEN, "auth-issuer", False),
        (table.TOKEN, "auth-audience", False),
        (table.CERTIFICATE, "rest-tls-client-ca", True),
        (table.PROXY, "auth-proxy", True),
    ):
        is_given = bool(getattr(settings, SETTINGS[name].attribute))
        if is_required and method in settings.auth and not is_given:
            raise settings.error("auth", f"{method} needs --{name} too")
        if is_given and method not in settings.auth:
            raise settings.error(name, f"needs --auth {method} too")
