"""The users of pods: how the annotation names them, and who may name whom.

The annotation decides about queues, quotas and limits, so it must be vouched for: the admission controller writes the
user who sends the request, and only the users that the settings list may write another one. Controllers, such as those
of Kubernetes, create pods from templates, so a template has the annotation, too.

The same rules are in `registrations.py` in the language of the API server, which applies them without the controller.

Not here: what changes in an object (`mutations.py`), the meaning of the annotation for scheduling (`pods.py`).
"""

import re
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec
from msgspec import Struct

from yunishard.common.config.placement_rules import NAME_LENGTH_MAX, Expression
from yunishard.kubernetes_shim.admission.reviews import RequestUser
from yunishard.kubernetes_shim.annotations import decode_annotation
from yunishard.kubernetes_shim.pods import NOBODY, USER_INFO, UserInfo
from yunishard.kubernetes_shim.settings import AdmissionSettings

CREATOR: Final = "authentication.kubernetes.io/pod-uid"
"""The key by which the API server names the pod whose token authenticates a request. Only it can set the key."""

NOBODY_INFO: Final = f'{{"user":"{NOBODY}"}}'
"""The annotation of a pod for which no user is vouched."""


class Workload(NamedTuple):
    """A kind of object from which a controller creates pods."""

    kind: str
    group: str
    plural: str
    path: tuple[str, ...] = ("spec", "template")
    """Where it has the template of its pods."""


WORKLOADS: Final = (
    Workload("ReplicationController", "", "replicationcontrollers"),
    Workload("PodTemplate", "", "podtemplates", ("template",)),
    Workload("Deployment", "apps", "deployments"),
    Workload("ReplicaSet", "apps", "replicasets"),
    Workload("StatefulSet", "apps", "statefulsets"),
    Workload("DaemonSet", "apps", "daemonsets"),
    Workload("Job", "batch", "jobs"),
    Workload("CronJob", "batch", "cronjobs", ("spec", "jobTemplate", "spec", "template")),
)
"""All kinds of Kubernetes that have a template of pods, except for revisions, which controllers write."""


_CONTROL_CHARACTERS: Final = re.compile(r"[\x00-\x1f]")
_UID: Final = re.compile(r"[0-9A-Za-z-]+")


def describe_user(user: RequestUser) -> str:
    """Return the annotation for this user. `registrations.py` builds the same text, which is why a user or group with
    control characters has none: its pods have no user.
    """
    if any(map(_CONTROL_CHARACTERS.search, (user.username, *user.groups))):
        return NOBODY_INFO
    creators = [one for one in user.extra.get(CREATOR, []) if _UID.fullmatch(one)]
    info = UserInfo(user.username, user.groups, creators[0] if len(creators) == 1 else "")
    return msgspec.json.encode(info).decode()


class Access(Struct, frozen=True):
    """The rules that decide whether a user may name another one."""

    settings: AdmissionSettings = AdmissionSettings()
    shim_user: str = ""
    """The user as whom the shim creates placeholders, which have the user of their application."""

    def is_controller(self, user: RequestUser) -> bool:
        """Whether the user creates pods and workloads from templates of others."""
        return self.settings.trust_controllers and is_listed(user.username, self.settings.system_users)

    def may_name_others(self, user: RequestUser) -> bool:
        """Whether the user may create pods for other users."""
        settings = self.settings
        return (
            self.is_controller(user)
            or (self.shim_user != "" and user.username == self.shim_user)
            or is_listed(user.username, settings.external_users)
            or any(is_listed(group, settings.external_groups) for group in user.groups)
        )

    def choose_user(self, named: str | None, user: RequestUser, *, is_owned: bool = False) -> str | None:
        """Return the annotation for something that the user creates with this one, which was not refused. `is_owned`:
        a controller creates it for its owner, and vouches only for the user in the owner's template.
        """
        if self.settings.bypass_auth or (named is not None and self.may_name_others(user)):
            return named
        return NOBODY_INFO if is_owned and self.is_controller(user) else describe_user(user)

    def refuse(self, named: str | None, user: RequestUser) -> str:
        """Return why the user may not create something with this annotation; empty if it may. Users may name
        themselves: the annotation is replaced.
        """
        if named is None or self.settings.bypass_auth:
            return ""
        may_name_others = self.may_name_others(user)
        try:
            info = decode_annotation(named, UserInfo)
        except msgspec.DecodeError as error:
            if may_name_others:
                return f'the annotation {USER_INFO}: expected JSON as in {{"user": "a", "groups": ["b"]}}: {error}'
            info = UserInfo()
        if may_name_others or info.user == user.username != "" or named == describe_user(user):
            return ""
        return (
            f"the user {user.username!r} may not set the annotation {USER_INFO}: leave it out, or list the user "
            "in admissionController.accessControl.externalUsers, or a group of the user in externalGroups"
        )


def is_listed(name: str, expressions: tuple[str, ...], *, if_empty: bool = False) -> bool:
    """Whether an expression of the list is found in the name. Names that are too long to be matched are not listed."""
    if not expressions:
        return if_empty
    return len(name) <= NAME_LENGTH_MAX and any(one.found_in(name) for one in _compile(expressions))


@lru_cache(maxsize=32)
def _compile(expressions: tuple[str, ...]) -> tuple[Expression, ...]:
    return tuple(map(Expression, expressions))
