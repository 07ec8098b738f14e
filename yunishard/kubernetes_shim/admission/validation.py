"""The check of a config map that is being changed: its settings must be readable, and the core must accept the queues.

Not here: the request to the core (`controller.py`).
"""

from collections.abc import Mapping

import msgspec

from yunishard.kubernetes_shim.admission.reviews import ADMITTED, AdmissionRequest, ReviewError, Verdict
from yunishard.kubernetes_shim.objects import ConfigMap, decode_object
from yunishard.kubernetes_shim.settings import CONFIG_MAPS_READ, read_config_map, read_config_maps, read_settings


class CoreVerdict(msgspec.Struct):
    """The answer of the core to a configuration."""

    allowed: bool
    reason: str = ""


def find_configuration(request: AdmissionRequest, maps: Mapping[str, ConfigMap], policy_group: str) -> str:
    """Return the configuration of the core as the request would make it; empty if there is none to validate.

    Raises:
        ReviewError: the object cannot be read.
        SettingsError: the config map that changes, or its combination with the other one, cannot be read.
    """
    if (changed := _find_changed(request)) is None:
        return ""
    read_settings([read_config_map(changed)])  # what is wrong in the other map does not hinder changes of this one
    merged: dict[str, str] = {}
    for one in read_config_maps({**maps, request.name: changed}):
        merged |= one
    return merged.get(f"{policy_group}.yaml", "")


def find_data(request: AdmissionRequest) -> dict[str, str]:
    """Return the data of the config map as the request would make it; empty if it is not one that is read. Raises
    ReviewError and SettingsError.
    """
    return read_config_map(_find_changed(request))


def _find_changed(request: AdmissionRequest) -> ConfigMap | None:
    if request.name not in CONFIG_MAPS_READ or request.operation not in ("CREATE", "UPDATE"):
        return None
    try:
        return decode_object(request.object, ConfigMap)
    except msgspec.DecodeError as error:
        raise ReviewError(f"the object cannot be read: {error}") from None


def judge(verdict: CoreVerdict | None, place: str) -> Verdict:
    """Return the answer to a request with this verdict of the core; None if the core gave none."""
    if verdict is None:
        return Verdict(warnings=(f"the queues in {place} were not validated, because the scheduler did not answer",))
    return ADMITTED if verdict.allowed else Verdict(refusal=f"{place}: {verdict.reason}")
