"""Small builders, so that a test of the engine shows only what matters.

Everything is written as words: a name, flags, and `key=value`, where a key that means nothing else is a resource type:

    config("root.a max=memory:50; root.b guaranteed=memory:10")
    nodes("n1 memory=10 gpu=1")        apps("app-1 root.a user=bob")        released("app-1 a1 type=TIMEOUT")
    asks("app-1 a1 memory=4 priority=2 created=100", "app-1 a2 memory=4 on=n1")

All amounts are in base units, in queues too. What plays them to a partition is in `trial.py`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from yunishard.common.config.model import (
    ChildTemplateConfig,
    LimitConfig,
    NodeSortConfig,
    PartitionConfig,
    PlacementRuleConfig,
    PreemptionConfig,
    QueueConfig,
    ResolverConfig,
    ResourcesConfig,
)
from yunishard.common.messages import rm_messages
from yunishard.common.messages.kinds import Command, Resources
from yunishard.common.messages.rm_messages import (
    NODE_CREATE,
    AddApplicationRequest,
    Allocation,
    AllocationRelease,
    AllocationReleasesRequest,
    AllocationRequest,
    ApplicationRequest,
    NodeInfo,
    NodeRequest,
    PreemptionPolicy,
    RemoveApplicationRequest,
    UserGroupInformation,
)

PARTITION = "rm-1_default"

PROVIDED_CREATE = PlacementRuleConfig(name="provided", create=True)
"""The rule that makes the queue an application asks for."""

TERMINATION_TYPES = {
    name: getattr(rm_messages, name)
    for name in (
        "UNKNOWN_TERMINATION",
        "STOPPED_BY_RM",
        "TIMEOUT",
        "PREEMPTED_BY_SCHEDULER",
        "PLACEHOLDER_REPLACED",
        "SCHEDULING_FAILED_ON_RM",
    )
}
TYPE_NAMES = {number: name for name, number in TERMINATION_TYPES.items()}


@dataclass
class Words:
    """A text taken apart; what is left over at the end are resources."""

    names: list[str] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)

    def take(self, key: str, default: str = "") -> str:
        return self.settings.pop(key, default)

    def flag(self, name: str) -> bool:
        if name in self.names:
            self.names.remove(name)
            return True
        return False

    def tags(self) -> dict[str, str]:
        """Settings `tag.NAME=value`."""
        found = [key for key in self.settings if key.startswith("tag.")]
        return {key.removeprefix("tag."): self.take(key) for key in found}

    def resources(self) -> Resources:
        return {kind: int(value) for kind, value in self.settings.items()}


def words(text: str) -> Words:
    parsed = Words()
    for word in text.split():
        key, equals, value = word.partition("=")
        if equals:
            parsed.settings[key] = value
        else:
            parsed.names.append(word)
    return parsed


# Configuration ------------------------------------------------------------------------------------------------------


def config(
    queues: str = "root.a",
    *,
    nodes: str = "fair",
    weights: Mapping[str, float] | None = None,
    rules: tuple[PlacementRuleConfig, ...] = (),
    preemption: bool | None = None,
    quota_preemption: bool | None = None,
    resolver: str = "",
) -> PartitionConfig:
    """A partition with these queues, one after the other with `;` between them; those above them exist as well.

    Settings: `max`, `guaranteed` (`memory:50,gpu:2`), `maxapps`, `parent`, `submitacl`, `adminacl`, the same of the
    child template (`template.max`), limits (`limit.user.bob=memory:5,apps:2`, `limit.group.*=apps:1`) in their order,
    and properties, which have a dot in their name.
    """
    tree: dict[str, Words] = {"root": Words()}
    for text in filter(str.strip, queues.split(";")):
        parsed = words(text)
        path = parsed.names.pop(0)
        parts = path.split(".")
        for level in range(1, len(parts)):
            tree.setdefault(".".join(parts[:level]), Words())
        tree[path] = parsed
    tree["root"].settings.setdefault("submitacl", "*")
    return PartitionConfig(
        name="default",
        queues=(_queue("root", tree),),
        placement_rules=rules,
        node_sort_policy=NodeSortConfig(type=nodes, resource_weights=weights or {}),
        preemption=PreemptionConfig(enabled=preemption, quota_preemption_enabled=quota_preemption),
        user_group_resolver=ResolverConfig(type=resolver),
    )


def _queue(path: str, tree: Mapping[str, Words]) -> QueueConfig:
    below = [other for other in tree if other.rpartition(".")[0] == path]
    settings = tree[path]
    template = Words(settings={key: settings.take(f"template.{key}") for key in _template_keys(settings)})
    return QueueConfig(
        name=path.rpartition(".")[2],
        parent=settings.flag("parent") or path == "root",
        queues=tuple(_queue(child, tree) for child in below),
        submit_acl=settings.take("submitacl"),
        admin_acl=settings.take("adminacl"),
        max_applications=int(settings.take("maxapps", "0")),
        limits=tuple(_limits(settings)),
        resources=_resources(settings),
        child_template=ChildTemplateConfig(
            max_applications=int(template.take("maxapps", "0")),
            resources=_resources(template),
            properties=template.settings,
        ),
        properties=settings.settings,
    )


def _template_keys(settings: Words) -> list[str]:
    return [key.removeprefix("template.") for key in settings.settings if key.startswith("template.")]


def _limits(settings: Words) -> Iterator[LimitConfig]:
    for key in [key for key in settings.settings if key.startswith("limit.")]:
        _, kind, name = key.split(".", 2)
        most = _quantities(settings.take(key)) or {}
        yield LimitConfig(
            limit=key,
            users=(name,) if kind == "user" else (),
            groups=(name,) if kind == "group" else (),
            max_applications=int(most.pop("apps", "0")),
            max_resources=most,
        )


def _resources(settings: Words) -> ResourcesConfig:
    return ResourcesConfig(max=_quantities(settings.take("max")), guaranteed=_quantities(settings.take("guaranteed")))


def _quantities(text: str) -> dict[str, str] | None:
    if not text:
        return None
    pairs = (part.split(":") for part in text.split(","))
    return {kind: f"{amount}m" if kind == "vcore" else amount for kind, amount in pairs}


# Commands -----------------------------------------------------------------------------------------------------------


def nodes(*texts: str, action: int = NODE_CREATE) -> NodeRequest:
    """Nodes: `n1 memory=10 tag.si/hostname=host-1`; without resources there are none in the message."""
    return NodeRequest(nodes=[_node(words(text), action) for text in texts])


def _node(text: Words, action: int) -> NodeInfo:
    tags = text.tags()
    return NodeInfo(
        node_id=text.names[0] if text.names else "",
        action=action,
        attributes=tags,
        schedulable_resource=text.resources() or None,
    )


def apps(*texts: str) -> ApplicationRequest:
    """New applications: `app-1 root.a user=bob groups=dev,qa tag.namespace=x gang=memory:20 style=Hard timeout=4000`
    (milliseconds).
    """
    return ApplicationRequest(new=[_app(words(text)) for text in texts])


def _app(text: Words) -> AddApplicationRequest:
    name, queue = (*text.names, "", "")[:2]
    groups = text.take("groups")
    return AddApplicationRequest(
        application_id=name,
        queue_name=queue,
        ugi=UserGroupInformation(user=text.take("user", "bob"), groups=groups.split(",") if groups else []),
        tags=text.tags(),
        placeholder_ask=_amounts(text.take("gang")),
        gang_scheduling_style=text.take("style"),
        execution_timeout_milli_seconds=int(text.take("timeout", "0")),
    )


def _amounts(text: str) -> Resources:
    return {kind: int(amount) for kind, _, amount in (part.partition(":") for part in text.split(",") if part)}


def gone(*application_ids: str) -> ApplicationRequest:
    """Applications that are removed."""
    return ApplicationRequest(remove=[RemoveApplicationRequest(application_id=name) for name in application_ids])


def asks(*texts: str) -> AllocationRequest:
    """Asks, or with `on=NODE` what already runs: `app-1 a1 memory=4 priority=1 created=100 required=n1`; `victim` if it
    agrees to be preempted, `preemptor` if it may preempt.
    """
    return AllocationRequest(allocations=[ask(text) for text in texts])


def ask(text: str) -> Allocation:
    parsed = words(text)
    tags = parsed.tags()
    if created := parsed.take("created"):
        tags["creationTime"] = created
    if required := parsed.take("required"):
        tags["yunikorn.apache.org/requiredNode"] = required
    return Allocation(
        placeholder=parsed.flag("placeholder"),
        originator=parsed.flag("originator"),
        preemption_policy=_policy(victim=parsed.flag("victim"), preemptor=parsed.flag("preemptor")),
        application_id=parsed.names[0],
        allocation_key=(*parsed.names, "")[1],
        node_id=parsed.take("on"),
        priority=int(parsed.take("priority", "0")),
        task_group_name=parsed.take("group"),
        allocation_tags=tags,
        resource_per_alloc=parsed.resources(),
    )


def _policy(*, victim: bool, preemptor: bool) -> PreemptionPolicy | None:
    policy = PreemptionPolicy(allow_preempt_self=victim, allow_preempt_other=preemptor)
    return policy if victim or preemptor else None


def foreign(*texts: str) -> AllocationRequest:
    """What runs on nodes without being ours: `f1 n1 memory=2`."""
    return AllocationRequest(allocations=[_foreign(words(text)) for text in texts])


def _foreign(text: Words) -> Allocation:
    key, node = (*text.names, "")[:2]
    return Allocation(
        allocation_key=key,
        node_id=node,
        allocation_tags={"foreign": text.take("foreign", "default")},
        resource_per_alloc=text.resources(),
    )


def released(*texts: str) -> AllocationRequest:
    """Releases: `app-1 a1`, `app-1` for all it has, `- f1` for a foreign one; `type=TIMEOUT` if not by the RM."""
    return AllocationRequest(
        releases=AllocationReleasesRequest(allocations_to_release=[_release(words(text)) for text in texts])
    )


def _release(text: Words) -> AllocationRelease:
    application, key = (*text.names, "")[:2]
    return AllocationRelease(
        application_id="" if application == "-" else application,
        allocation_key=key,
        termination_type=TERMINATION_TYPES[text.take("type", "STOPPED_BY_RM")],
    )


COMMANDS: dict[str, Callable[..., Command]] = {
    "node": nodes,
    "drained-node": partial(nodes, action=rm_messages.NODE_CREATE_DRAIN),
    "update-node": partial(nodes, action=rm_messages.NODE_UPDATE),
    "drain": partial(nodes, action=rm_messages.NODE_DRAIN),
    "undrain": partial(nodes, action=rm_messages.NODE_DRAIN_TO_SCHEDULABLE),
    "remove-node": partial(nodes, action=rm_messages.NODE_DECOMMISSION),
    "app": apps,
    "remove-app": gone,
    "ask": asks,
    "release": released,
    "foreign": foreign,
}
"""What builds a command from texts, by its verb in a story."""


def both(*requests: AllocationRequest) -> AllocationRequest:
    """Several requests as one message."""
    return AllocationRequest(
        allocations=[one for request in requests for one in request.allocations],
        releases=AllocationReleasesRequest(
            allocations_to_release=list(_all(request.releases.allocations_to_release for request in requests))
        ),
    )


def _all(lists: Iterable[list[AllocationRelease]]) -> Iterable[AllocationRelease]:
    return (one for each in lists for one in each)
