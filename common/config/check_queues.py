"""The rules for queues: their names, who may use them, and what they may hold, alone and compared with their parents.

Not here: limits of users and groups (`check_limits.py`), and the order in which rules are looked at (`check.py`).
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from common.acl import has_too_many_fields, multiple_spaces
from common.config.normal import Place
from common.config.problems import Report
from common.messages import Resources
from common.names import ILLEGAL_QUEUE, QUEUE
from common.quantity import QuantityError, parse_quantity
from common.resources import NOTHING, Limit, admits, is_zero, saturated, text, tightened, total_of

_QUANTITY: Final = "a whole number, perhaps with k M G T P E or Ki Mi Gi Ti Pi Ei, or m for vcore"


def check_root_resources(root: Place, report: Report) -> None:
    """Root holds what the cluster has, nothing else; even an empty map claims otherwise."""
    for key, written in (("guaranteed", root.queue.resources.guaranteed), ("max", root.queue.resources.max)):
        if written is not None:
            report.add("root-resources", f"{root.path}.resources.{key}", "root queue must not have resource limits set")


NO_MAX_APPLICATIONS: Final = (
    "maxApplications is either undefined or zero, which is not allowed when parent queue's maxApplications is defined"
)
TOO_MANY_APPLICATIONS: Final = "parent maxApplications must be larger than child maxApplications"


def check_acls(place: Place, report: Report) -> None:
    """An access control list has at most two words: users and groups."""
    for key, acl in (("adminacl", place.queue.admin_acl), ("submitacl", place.queue.submit_acl)):
        if has_too_many_fields(acl):
            hint = "users, one blank, groups; commas within"
            report.add("acl", f"{place.path}.{key}", multiple_spaces(acl), hint=hint)


def check_child_names(place: Place, report: Report) -> None:
    """The queues below a queue have legal names that differ in more than case."""
    seen: set[str] = set()
    for child in place.children:
        name = child.queue.name
        if not QUEUE.fullmatch(name):
            report.add("queue-name", f"{child.path}.name", ILLEGAL_QUEUE, hint=f"this one is '{name}'")
        elif name.lower() in seen:
            message = f"duplicate child name found with name '{name}', level {child.level}"
            report.add("queue-duplicate", f"{child.path}.name", message)
        seen.add(name.lower())


def check_max_applications(place: Place, report: Report) -> None:
    """Once a queue bounds its applications each queue directly below does, and not higher."""
    most = place.queue.max_applications
    if most == 0:
        return
    for child in place.children:
        if child.queue.max_applications == 0:
            hint = f"queue {child.queue.name} needs 1 to {most}, because its parent has it"
            report.add("max-apps", child.path, NO_MAX_APPLICATIONS, hint=hint)
        elif child.queue.max_applications > most:
            hint = f"queue {child.queue.name} may have {most} at most"
            report.add("max-apps", f"{child.path}.maxapplications", TOO_MANY_APPLICATIONS, hint=hint)


def check_resources(place: Place, report: Report, limit: Limit = NOTHING) -> Resources:
    """Nowhere is more guaranteed than can be given, and no maximum is above one further up; returns what is guaranteed.

    `limit` is what the queues above allow. The guarantees of children count together, and a queue that has none of its
    own passes on theirs.
    """
    name, path = place.queue.name, f"{place.path}.resources"
    guaranteed = read_amounts(place.queue.resources.guaranteed, f"{path}.guaranteed", report)
    maximum = read_amounts(place.queue.resources.max, f"{path}.max", report)
    if not admits(maximum, guaranteed):
        message = (
            f"guaranteed resource {text(guaranteed)} is larger than maximum resource {text(maximum)} for queue {name}"
        )
        report.add("guaranteed-over-max", f"{path}.guaranteed", message)
    if not admits(limit, maximum):
        message = (
            f"max resource of parent {text(limit)} is smaller than maximum resource {text(maximum)} for queue {name}"
        )
        report.add("max-over-parent", f"{path}.max", message)
    limit = tightened(limit, maximum) or {}
    below = saturated(total_of([check_resources(child, report, limit) for child in place.children]))
    promised = f"sum of guaranteed resources {text(below)} of the children for queue {name}"
    if not admits(guaranteed, below):
        message = f"guaranteed resource of parent {text(guaranteed)} is smaller than {promised}"
        report.add("children-guaranteed-over-guaranteed", place.path, message)
    if not admits(limit, below):
        message = f"max resource {text(limit)} is smaller than {promised}"
        report.add("children-guaranteed-over-max", place.path, message)
    return below if is_zero(guaranteed) else guaranteed


def read_amounts(texts: Mapping[str, str] | None, path: str, report: Report, *, kind: str = "quantity") -> Resources:
    """Return the numbers behind quantity texts, without those that are none, which are noted as problems of `kind`."""
    read: Resources = {}
    for resource_type, quantity in (texts or {}).items():
        try:
            read[resource_type] = _amount(quantity, resource_type)
        except QuantityError as error:
            hint = f"'{quantity}' should be {_QUANTITY}"
            report.add(kind, f"{path}.{resource_type}", str(error), hint=hint)
    return read


@lru_cache(maxsize=4096)  # a large tree writes the same few amounts, and each is looked at several times
def _amount(quantity: str, resource_type: str) -> int:
    return parse_quantity(quantity, resource_type=resource_type)
