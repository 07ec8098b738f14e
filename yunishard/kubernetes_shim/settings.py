"""The settings of the shim and the admission controller, from the data of their config maps.

Both processes read `yunikorn-defaults` and then `yunikorn-configs`; the second one overrides the first key by key. The
keys are YuniKorn's, so that its config maps work unchanged. One key has the configuration of the core as text, other
keys that end in `.yaml` are no settings, and all others go to the core as its extra configuration. Unlike there, a
value that cannot be read is an error: at the start it ends the process, and later the previous settings stay in force.

Not here: watching the config maps (the drivers), log levels and other settings of the core
(`common/config/extra_config.py`).
"""

import base64
import binascii
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec import Struct, convert

from yunishard.common.config.parse import TEXT_BYTES_MAX
from yunishard.common.config.placement_rules import Expression, ExpressionError
from yunishard.common.names import RM_ID
from yunishard.common.text_formats import parse_duration
from yunishard.kubernetes_shim.objects import ConfigMap

CONFIG_MAPS_READ: Final = ("yunikorn-defaults", "yunikorn-configs")
"""Names of the config maps in their order: later ones override earlier ones."""

UNZIPPED_BYTES_MAX: Final = TEXT_BYTES_MAX
"""Bytes of an unzipped key of a config map. A longer one is refused, as the core refuses a longer configuration."""


class SettingsError(ValueError):
    """Settings that cannot be read: for each, one line with its key, the value, and what would be right."""


class AdmissionSettings(Struct, frozen=True, kw_only=True):
    """The settings below `admissionController.`; lists of regular expressions in the syntax of RE2."""

    service_name: str = "yunikorn-admission-controller-service"
    """The service through which the API server reaches the webhooks."""
    scheduler_address: str = "yunikorn-service:9080"
    """The REST port of the core, which validates configurations."""
    process_namespaces: tuple[str, ...] = ()
    """Namespaces whose pods the scheduler gets; empty for all."""
    bypass_namespaces: tuple[str, ...] = ("^kube-system$",)
    """Namespaces whose pods stay with the default scheduler."""
    label_namespaces: tuple[str, ...] = ()
    """Namespaces whose pods get an application id if they have none; empty for all."""
    no_label_namespaces: tuple[str, ...] = ()
    generate_unique_app_id: bool = False
    """Whether each pod without an application id becomes an application of its own."""
    bypass_auth: bool = False
    """Whether every user may submit pods for every other user."""
    trust_controllers: bool = True
    """Whether `system_users` may submit pods for any user."""
    system_users: tuple[str, ...] = ("^system:serviceaccount:kube-system:",)
    external_users: tuple[str, ...] = ()
    external_groups: tuple[str, ...] = ()


class Settings(Struct, frozen=True, kw_only=True):
    """The settings in force."""

    cluster_id: str = "mycluster"
    """The RM's id."""
    policy_group: str = "queues"
    """The key of the core's configuration, without `.yaml`."""
    volume_bind_timeout_s: float = 600.0
    disable_gang_scheduling: bool = False
    """Whether task groups are ignored."""
    enable_config_hot_refresh: bool = True
    """Whether changes of the config maps take effect before a restart."""
    placeholder_image: str = "registry.k8s.io/pause:3.7"
    instance_type_label: str = "node.kubernetes.io/instance-type"
    """The label of a node with its instance type."""
    qps: int = 1000
    """Requests a second to the API server."""
    burst: int = 1000
    """Requests at once, after a pause."""
    admission: AdmissionSettings = AdmissionSettings()
    configuration: str = ""
    """The core's configuration, in YAML; empty for that of the core."""
    extra_config: dict[str, str] = {}
    """All keys that do not end in `.yaml`, for the core."""


def read_settings(maps: Sequence[Mapping[str, str]], *, current: Settings | None = None) -> Settings:
    """Return the settings of these maps, of which later ones override earlier ones key by key.

    Settings that are read only at the start keep their values from `current`.

    Raises:
        SettingsError: values that cannot be read.
    """
    values = {key: value for one in maps for key, value in one.items()}
    found, problems = _parse(_SERVICE, values)
    admission, more = _parse(_ADMISSION, values)
    if problems or more:
        raise SettingsError("\n".join(problems + more))
    if current is not None:
        for setting in _SERVICE.values():
            if setting.is_read_at_start:
                found[setting.field] = getattr(current, setting.field)
    key = f"{found.get('policy_group', Settings().policy_group)}{_YAML}"
    return convert(
        {
            **found,
            "admission": convert(admission, AdmissionSettings),
            "configuration": values.get(key, ""),
            "extra_config": {key: value for key, value in values.items() if not key.endswith(_YAML)},
        },
        Settings,
    )


def find_keys_for_restart(current: Settings, maps: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the keys whose values in these maps take effect only after a restart. Raises SettingsError."""
    new = read_settings(maps)
    return [
        key
        for key, setting in _SERVICE.items()
        if setting.is_read_at_start and getattr(new, setting.field) != getattr(current, setting.field)
    ]


def read_config_map(config_map: ConfigMap | None) -> dict[str, str]:
    """Return the data of a config map, with zipped keys unzipped; a map that does not exist is empty.

    Raises:
        SettingsError: a zipped key cannot be unzipped, or is too long.
    """
    if config_map is None:
        return {}
    found = dict(config_map.data)
    for key, encoded in sorted(config_map.binary_data.items()):
        if key.endswith(_ZIPPED):
            found[key.removesuffix(_ZIPPED)] = _unzip(encoded, f"{config_map.metadata.name}: binaryData {key}")
    return found


def read_config_maps(maps: Mapping[str, ConfigMap]) -> list[dict[str, str]]:
    """Return the data of the config maps that are read, in their order. Raises SettingsError."""
    return [read_config_map(maps.get(name)) for name in CONFIG_MAPS_READ]


_YAML: Final = ".yaml"
_ZIPPED: Final = ".gz"


def _unzip(encoded: str, place: str) -> str:
    unzipper = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)  # 16: with the header of gzip
    try:
        text = unzipper.decompress(base64.b64decode(encoded, validate=True), UNZIPPED_BYTES_MAX)
        if not unzipper.eof:
            problem = f"longer than {UNZIPPED_BYTES_MAX} bytes" if unzipper.unconsumed_tail else "not all of it"
            raise SettingsError(f"{place}: expected a whole file of gzip, got one that is {problem}")
        return text.decode()
    except (binascii.Error, zlib.error, UnicodeDecodeError) as error:
        raise SettingsError(f"{place}: expected a file of gzip with UTF-8 text: {error}") from None


# The meaning of one text; ValueError states what would be right -------------------------------------------------------

Value = str | bool | int | float | tuple[str, ...]


def _parse_text(text: str) -> str:
    if not text:
        raise ValueError("expected a text that is not empty")
    return text


def _parse_rm_id(text: str) -> str:
    if not RM_ID.fullmatch(text):
        raise ValueError("expected 1 to 64 letters, digits and -_.:, such as mycluster")
    return text


def _parse_flag(text: str) -> bool:
    if text in ("1", "t", "T", "TRUE", "true", "True"):
        return True
    if text in ("0", "f", "F", "FALSE", "false", "False"):
        return False
    raise ValueError("expected true or false")


def _parse_count(text: str) -> int:
    if not re.fullmatch(r"\+?[0-9]{1,9}", text) or not int(text):
        raise ValueError("expected a whole number from 1 to 999999999")
    return int(text)


def _parse_time(text: str) -> float:
    found = parse_duration(text)
    if found is None or found <= 0:
        raise ValueError("expected a duration above zero with its unit, such as 90s or 10m")
    return found


def _parse_address(text: str) -> str:
    match = re.fullmatch(r"[^\s:/]+:([0-9]{1,5})", text)
    if match is None or not 0 < int(match[1]) < 1 << 16:
        raise ValueError("expected HOST:PORT, such as yunikorn-service:9080")
    return text


def _parse_expressions(text: str) -> tuple[str, ...]:
    found = tuple(one for part in text.split(",") if (one := part.strip()))
    for one in found:
        try:
            Expression(one)
        except ExpressionError as error:
            raise ValueError(f"expected regular expressions with commas between; of {one!r}: {error}") from None
    return found


class _Setting(NamedTuple):
    field: str
    """Of the struct; empty for one that is checked and has no effect, because this shim waits for events."""
    parse: Callable[[str], Value]
    is_read_at_start: bool = False


_SERVICE: Final = {
    "service.clusterId": _Setting("cluster_id", _parse_rm_id, is_read_at_start=True),
    "service.policyGroup": _Setting("policy_group", _parse_text, is_read_at_start=True),
    "service.schedulingInterval": _Setting("", _parse_time),
    "service.volumeBindTimeout": _Setting("volume_bind_timeout_s", _parse_time, is_read_at_start=True),
    "service.eventChannelCapacity": _Setting("", _parse_count),
    "service.dispatchTimeout": _Setting("", _parse_time),
    "service.disableGangScheduling": _Setting("disable_gang_scheduling", _parse_flag, is_read_at_start=True),
    "service.enableConfigHotRefresh": _Setting("enable_config_hot_refresh", _parse_flag),
    "service.placeholderImage": _Setting("placeholder_image", _parse_text, is_read_at_start=True),
    "service.nodeInstanceTypeNodeLabelKey": _Setting("instance_type_label", _parse_text, is_read_at_start=True),
    "kubernetes.qps": _Setting("qps", _parse_count, is_read_at_start=True),
    "kubernetes.burst": _Setting("burst", _parse_count, is_read_at_start=True),
}

_ADMISSION: Final = {
    "admissionController.webHook.amServiceName": _Setting("service_name", _parse_text),
    "admissionController.webHook.schedulerServiceAddress": _Setting("scheduler_address", _parse_address),
    "admissionController.filtering.processNamespaces": _Setting("process_namespaces", _parse_expressions),
    "admissionController.filtering.bypassNamespaces": _Setting("bypass_namespaces", _parse_expressions),
    "admissionController.filtering.labelNamespaces": _Setting("label_namespaces", _parse_expressions),
    "admissionController.filtering.noLabelNamespaces": _Setting("no_label_namespaces", _parse_expressions),
    "admissionController.filtering.generateUniqueAppId": _Setting("generate_unique_app_id", _parse_flag),
    "admissionController.accessControl.bypassAuth": _Setting("bypass_auth", _parse_flag),
    "admissionController.accessControl.trustControllers": _Setting("trust_controllers", _parse_flag),
    "admissionController.accessControl.systemUsers": _Setting("system_users", _parse_expressions),
    "admissionController.accessControl.externalUsers": _Setting("external_users", _parse_expressions),
    "admissionController.accessControl.externalGroups": _Setting("external_groups", _parse_expressions),
}


KEYS: Final = frozenset({*_SERVICE, *_ADMISSION})
"""The keys of all settings that are read here."""


def _parse(settings: Mapping[str, _Setting], values: Mapping[str, str]) -> tuple[dict[str, Value], list[str]]:
    """Return the values of fields, and the problems."""
    found: dict[str, Value] = {}
    problems = []
    for key, setting in settings.items():
        if key in values:
            try:
                value = setting.parse(values[key])
            except ValueError as error:
                problems.append(f"{key} is {values[key]!r}: {error}")
                continue
            if setting.field:
                found[setting.field] = value
    return found, problems
