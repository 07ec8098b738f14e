"""What a namespace may use, as the tags of its applications say: the quota, guarantee and number of applications of the
dynamic queue that was made for it.

A resource manager that has namespaces (Kubernetes is one) sends these tags with every application, so a change of the
namespace reaches the queue with the next one. A text that cannot be read sets nothing and is no error.

Not here: which queues take notice (`updates/application_updates.py`).
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from common.messages import Amount, Resources
from common.resources import is_positive
from partition_worker.engine.queues.queue import Queue
from partition_worker.engine.user_resolution import tag_value

QUOTA: Final = "namespace.resourcequota"
GUARANTEED: Final = "namespace.resourceguaranteed"
MAX_APPLICATIONS: Final = "namespace.resourcemaxapps"

_COUNT: Final = re.compile(r"[0-9]{1,19}")


class Quota(NamedTuple):
    """What tags say. None: nothing that could be used."""

    max_applications: int | None
    maximum: Resources | None
    guaranteed: Resources | None
    problems: tuple[str, ...]
    """A sentence for each tag that cannot be read."""


class _Value(msgspec.Struct):
    value: Amount = 0


class _Document(msgspec.Struct):
    resources: dict[str, _Value]


def quota_of(tags: Mapping[str, str]) -> Quota:
    """Read the tags, whose names may be written in any case."""
    problems: list[str] = []
    count = tag_value(tags, MAX_APPLICATIONS)
    if count and not _COUNT.fullmatch(count):
        problems.append(f"tag {MAX_APPLICATIONS}: {count[:100]!r} is not a number")
        count = ""
    return Quota(
        max_applications=int(count or 0) or None,
        maximum=_resources(tags, QUOTA, problems),
        guaranteed=_resources(tags, GUARANTEED, problems),
        problems=tuple(problems),
    )


def _resources(tags: Mapping[str, str], tag: str, problems: list[str]) -> Resources | None:
    """The amounts of `{"resources": {"memory": {"value": 1000}}}`, unless they limit nothing."""
    text = tag_value(tags, tag)
    if not text:
        return None
    try:
        entries = msgspec.json.decode(text, type=_Document).resources
    except (msgspec.MsgspecError, RecursionError) as error:
        problems.append(f"tag {tag}: {error}")
        return None
    amounts = {kind: entry.value for kind, entry in entries.items()}
    return amounts if is_positive(amounts) else None


def apply(queue: Queue, quota: Quota) -> bool:
    """Set what the tags say; whether anything of the queue is different now.

    Maximum and guarantee belong together: when either is given the other is set too, if need be to none, also where a
    template had set it.
    """
    before = (queue.max_applications, queue.maximum, queue.guaranteed)
    if quota.max_applications is not None:
        queue.max_applications = quota.max_applications
    if quota.maximum is not None or quota.guaranteed is not None:
        queue.entitle(maximum=quota.maximum, guaranteed=quota.guaranteed)
    return before != (queue.max_applications, queue.maximum, queue.guaranteed)
