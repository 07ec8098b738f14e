"""What is doubtful about queues: properties, maxima, access, templates, names.

Not here: when these are asked (`doubts.py`), and what queues must obey (`check_queues.py`).
"""

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

from common.acl import NOBODY, AclError, left_out, parse_acl
from common.config.model import QueueConfig, ResourcesConfig
from common.config.normal import Place
from common.config.problems import DOUBT, Lines, Report
from common.config.properties import PROPERTIES, meant
from common.names import RECOVERY_QUEUE, ROOT, WHITE_SPACE

NAMED_MAX: Final = 5
"""Queues that nobody may submit to that are named; of more, only how many there are is told."""

_SPACE: Final = re.compile(f"[{WHITE_SPACE}]")
_ZERO: Final = re.compile(f"[{WHITE_SPACE}]*0+[^0-9]*")


def doubt_queue(place: Place, lines: Lines, report: Report) -> None:
    """All that can be said of one queue alone."""
    queue = place.queue
    if queue.properties:
        _doubt_properties(queue.properties, f"{place.path}.properties", report)
    _doubt_maximum(queue.resources, place, "resources", report)
    for key, text in (("adminacl", queue.admin_acl), ("submitacl", queue.submit_acl)):
        if text:
            _doubt_acl(text, place, key, report)
    _doubt_template(place, report)
    if queue.queues and not queue.parent and f"{place.path}.parent" in lines:
        message = f"queue {queue.name} is a parent all the same, because it has queues below it"
        report.add(DOUBT, f"{place.path}.parent", message)
    if place.level and queue.name.lower() == ROOT:
        message = f"a queue called {ROOT} below another one" + (f" is {ROOT}.{ROOT}" if place.level == 1 else "")
        report.add(
            DOUBT, f"{place.path}.name", message, hint=f"to be {ROOT} itself it must be the only queue at the top"
        )


def doubt_access(root: Place, report: Report) -> None:
    """Somebody may submit to each queue that is to run something; told once, at the first that is shut."""
    shut = _shut(root, root.queue.name.lower())
    named = list(islice(shut, NAMED_MAX))
    if not named:
        return
    others = sum(1 for _ in shut)
    paths = ", ".join(path for _, path in named) + (f" and {others} more" if others else "")
    message = f"nobody may submit to {paths}: no submitacl or adminacl there or above grants anything"
    report.add(DOUBT, named[0][0].path, message, hint=f"submitacl: '*' at {ROOT} would let everybody submit everywhere")


def _shut(place: Place, path: str) -> Iterator[tuple[Place, str]]:
    """Yield the queues at the ends of the tree to which no list on the way grants access, with their paths."""
    if _grants(place.queue) or path == RECOVERY_QUEUE:
        return
    if not place.children:
        yield place, path
    for child in place.children:
        yield from _shut(child, f"{path}.{child.queue.name.lower()}")


def _grants(queue: QueueConfig) -> bool:
    """Whether anybody is on one of the lists; a list that cannot be read is not judged here."""
    try:
        return any(parse_acl(text) != NOBODY for text in (queue.submit_acl, queue.admin_acl))
    except AclError:
        return True


def _doubt_properties(properties: Mapping[str, str], path: str, report: Report) -> None:
    """Known names have values that are taken, and unknown ones do not look like known ones."""
    for name, value in properties.items():
        if known := PROPERTIES.get(name):
            if known.misreads(value):
                message = f"{value!r} is no value of {name} and counts as its default, '{known.default}'"
                report.add(DOUBT, f"{path}.{name}", message, hint=f"it takes {known.values}")
        elif (other := meant(name)) and other not in properties:
            message = f"{name} means nothing to a queue"
            report.add(DOUBT, f"{path}.{name}", message, hint=f"did you mean {other}?")


def _doubt_maximum(resources: ResourcesConfig, place: Place, key: str, report: Report) -> None:
    """Zeros count only beside an amount. (A guarantee of nothing but zeros is none: that is what it says.)"""
    if resources.max and all(map(_ZERO.fullmatch, resources.max.values())):
        message = "a maximum of nothing but zeros is none: this is unlimited"
        hint = "zeros count only beside an amount; maxapplications or an access control list can shut a queue"
        report.add(DOUBT, f"{place.path}.{key}.max", message, hint=hint)


def _doubt_acl(text: str, place: Place, key: str, report: Report) -> None:
    """No entry is left out, and no user has become a group by a blank."""
    try:
        without = left_out(text)
    except AclError:
        return
    path = f"{place.path}.{key}"
    if without:
        names = ", ".join(map(repr, without[:NAMED_MAX]))
        more = f" and {len(without) - NAMED_MAX} more" if len(without) > NAMED_MAX else ""
        nobody = ", and nobody is left" if parse_acl(text) == NOBODY else ""
        hint = "* stands alone" if "*" in without else "no user or group of a list can be called so"
        if any(map(_SPACE.search, without)):
            hint = "one blank separates users from groups, and there is no other space"
        report.add(DOUBT, path, f"{names}{more} in an access control list counts nothing{nobody}", hint=hint)
    users, _, groups = text.partition(" ")
    if users.endswith(",") and groups.strip(WHITE_SPACE):
        report.add(DOUBT, path, f"{groups!r} are groups: users end at the blank", hint="no blank behind a comma")


def _doubt_template(place: Place, report: Report) -> None:
    """Queues below use it, so there can be some; and it says what it seems to say."""
    template, path = place.queue.child_template, f"{place.path}.childtemplate"
    if template.is_empty:
        return
    if not place.queue.is_parent:
        message = f"queue {place.queue.name} is a leaf, so its template is for nothing"
        report.add(DOUBT, path, message, hint="parent: true lets queues be created below it")
        return
    _doubt_properties(template.properties, f"{path}.properties", report)
    _doubt_maximum(template.resources, place, "childtemplate.resources", report)
