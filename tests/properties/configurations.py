"""Configurations for property tests: small, of every kind the grammar knows, and most of them accepted.

`configurations()` yields texts, `pairs_of_configurations()` a text and another that an operator may make of it,
`broken_configurations()` texts in which something is wrong, mostly. All of them are drawn without regard to the rules,
which shrinks well, and the first two are then made to obey them (`repairs.py`), which draws nothing.

Not here: what a text must do once it is accepted.
"""

from collections.abc import Callable
from functools import cache
from typing import TypeVar

import msgspec
import yaml
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from msgspec.structs import replace

from tests.properties.repairs import repaired
from yunishard.common.config.model import (
    ChildTemplateConfig,
    Configuration,
    FilterConfig,
    LimitConfig,
    NodeSortConfig,
    PartitionConfig,
    PlacementRuleConfig,
    PreemptionConfig,
    QueueConfig,
    ResolverConfig,
    ResourcesConfig,
)

T = TypeVar("T")

PARTITIONS = ("", "default", "gpu", "Batch")
QUEUES = ("a", "b", "Team", "c-1", "d_2", "P", "default", "root")
USERS = ("ann", "bob", "eve@example.com", "svc$")
GROUPS = ("dev", "ops", "a.b")
PLACES = ("root.a", "root.b.c-1", "root.team", "root.Team", "a", "b.a", "new", "root.new.er")
ACLS = ("", "*", " ", "ann", "ann,bob dev", " ops", "* dev", "bob *")
AMOUNTS = ("0", "1", "3", "20", "150", "2k", "1M", "4Ki", "1Mi", "20Gi", "5 k")
CORES = (*AMOUNTS[:-1], "500m", "1500m")
PROPERTIES = {
    "application.sort.policy": ("fifo", "fair", "stateaware", "FAIR", ""),
    "application.sort.priority": ("enabled", "disabled", "Disabled", "never"),
    "application.unschedasks.backoff": ("0", "3", "-1"),
    "application.unschedasks.backoff.delay": ("30s", "1m30s", "0", "soon"),
    "priority.policy": ("default", "fence", "FENCE", "wall"),
    "priority.offset": ("0", "5", "-7", "+2", "5.5"),
    "preemption.policy": ("default", "fence", "disabled", "Disabled", "sometimes"),
    "preemption.delay": ("10s", "1h", "-1s", "x"),
    "preemption.cooldown": ("10s", "2h", "0s"),
    "quota.preemption.delay": ("15s", "0", "bad"),
    "colour": ("blue", ""),
}


def configurations(*, partitions: int = 3) -> SearchStrategy[str]:
    """Texts of at most that many partitions; nearly all pass validation, load, and have rules that can be built."""
    return accepted_values(partitions=partitions).map(text_of)


@st.composite
def pairs_of_configurations(draw: DrawFn, *, partitions: int = 2) -> tuple[str, str]:
    """A text, and what up to four changes by an operator make of it."""
    before = draw(accepted_values(partitions=partitions))
    after = before
    for _ in range(draw(st.integers(0, 4))):
        after = draw(changes(after))
    return text_of(before), text_of(repaired(after))


@st.composite
def broken_configurations(draw: DrawFn) -> str:
    """A text as it was drawn, with no regard to any rule, or with a line lost, doubled, or bent."""
    configuration = draw(st.one_of(values(partitions=2), accepted_values(partitions=2)))
    lines = text_of(configuration).splitlines()
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(lines) - 1)) if lines else 0
        lines[at : at + 1] = draw(bent(lines[at] if lines else ""))
    return "\n".join(lines)


def accepted_values(*, partitions: int) -> SearchStrategy[Configuration]:
    """What `configurations` writes down."""
    return values(partitions=partitions).map(repaired)


def text_of(configuration: Configuration) -> str:
    """The configuration as an operator would write it."""
    return yaml.safe_dump(msgspec.to_builtins(configuration), sort_keys=False, default_flow_style=None, width=200)


# What is drawn without regard to the rules ---------------------------------------------------------------------------


def values(*, partitions: int) -> SearchStrategy[Configuration]:
    return st.builds(Configuration, partitions=several(partition(), most=partitions))


def several(items: SearchStrategy[T], *, most: int) -> SearchStrategy[tuple[T, ...]]:
    return st.lists(items, max_size=most).map(tuple)


def perhaps(strategy: SearchStrategy[T], otherwise: T) -> SearchStrategy[T]:
    """Usually nothing, so that what is drawn stays small."""
    return st.one_of(st.just(otherwise), st.just(otherwise), strategy)


@cache  # making a strategy takes longer than drawing from it
def partition() -> SearchStrategy[PartitionConfig]:
    return st.builds(
        PartitionConfig,
        name=st.sampled_from(PARTITIONS),
        queues=st.one_of(root().map(lambda only: (only,)), several(queue(1), most=3)),
        placement_rules=several(rule(2), most=3),
        limits=perhaps(several(limit(), most=2), ()),
        preemption=st.builds(
            PreemptionConfig,
            enabled=st.sampled_from((None, True, False)),
            quota_preemption_enabled=st.sampled_from((None, True, False)),
        ),
        node_sort_policy=st.builds(
            NodeSortConfig,
            type=st.sampled_from(("", "fair", "binpacking")),
            resource_weights=perhaps(
                st.dictionaries(st.sampled_from(("vcore", "memory", "gpu")), st.sampled_from((0.0, 0.5, 2.0))), {}
            ),
        ),
        user_group_resolver=st.builds(ResolverConfig, type=st.sampled_from(("", "os", "test", "other"))),
    )


@cache
def root() -> SearchStrategy[QueueConfig]:
    return st.builds(replace, queue(3), name=st.just("root"))


@cache
def queue(depth: int) -> SearchStrategy[QueueConfig]:
    """A queue with at most `depth` levels below it."""
    return st.builds(
        QueueConfig,
        name=st.sampled_from(QUEUES),
        parent=st.booleans(),
        queues=several(queue(depth - 1), most=3) if depth else st.just(()),
        resources=perhaps(resources(), ResourcesConfig()),
        max_applications=perhaps(st.integers(1, 9), 0),
        properties=properties(),
        submit_acl=st.sampled_from(ACLS),
        admin_acl=perhaps(st.sampled_from(ACLS), ""),
        child_template=perhaps(template(), ChildTemplateConfig()),
        limits=perhaps(several(limit(), most=3), ()),
    )


@cache
def template() -> SearchStrategy[ChildTemplateConfig]:
    return st.builds(
        ChildTemplateConfig, max_applications=st.integers(0, 3), properties=properties(), resources=resources()
    )


@cache
def properties() -> SearchStrategy[dict[str, str]]:
    one = st.sampled_from(sorted(PROPERTIES)).flatmap(
        lambda key: st.tuples(st.just(key), st.sampled_from(PROPERTIES[key]))
    )
    return perhaps(st.lists(one, max_size=3).map(dict), {})


@cache
def quantities() -> SearchStrategy[dict[str, str]]:
    cores, others = st.sampled_from(CORES), st.sampled_from(AMOUNTS)
    return st.fixed_dictionaries({}, optional={"memory": others, "vcore": cores, "gpu": others})


@cache
def resources() -> SearchStrategy[ResourcesConfig]:
    return st.builds(ResourcesConfig, guaranteed=perhaps(quantities(), None), max=perhaps(quantities(), None))


@cache
def limit() -> SearchStrategy[LimitConfig]:
    return st.builds(
        LimitConfig,
        limit=st.sampled_from(("", "some words")),
        users=several(st.sampled_from((*USERS, "*")), most=2),
        groups=several(st.sampled_from((*GROUPS, "*")), most=2),
        max_applications=st.integers(0, 5),
        max_resources=quantities(),
    )


@cache
def rule(depth: int) -> SearchStrategy[PlacementRuleConfig]:
    """A rule with at most `depth` parents behind it."""
    parent = perhaps(rule(depth - 1), None) if depth else st.none()
    create = st.booleans()
    named = st.sampled_from(("provided", "user", "User", "primarygroup", "secondarygroup", "applicationtype"))
    with_value = st.sampled_from(
        [("fixed", place) for place in PLACES] + [("Fixed", "a"), ("tag", "namespace"), ("tag", "Team")]
    )
    return st.one_of(
        st.builds(PlacementRuleConfig, name=named, create=create, parent=parent, filter=rule_filter()),
        with_value.flatmap(
            lambda pair: st.builds(
                PlacementRuleConfig,
                name=st.just(pair[0]),
                value=st.just(pair[1]),
                create=create,
                parent=st.none() if pair[0].lower() == "fixed" and pair[1].lower().startswith("root") else parent,
                filter=rule_filter(),
            )
        ),
    )


@cache
def rule_filter() -> SearchStrategy[FilterConfig]:
    users = st.sampled_from(((), ("ann",), ("ann", "9"), ("^a.*",), ("svc$",)))
    groups = st.sampled_from(((), ("dev",), ("dev", "ops"), ("(dev|ops)[0-9]*",)))
    kinds = st.sampled_from(("", "allow", "deny", "DENY"))
    return perhaps(st.builds(FilterConfig, type=kinds, users=users, groups=groups), FilterConfig())


# What an operator changes --------------------------------------------------------------------------------------------


@st.composite
def changes(draw: DrawFn, configuration: Configuration) -> Configuration:
    """One change, anywhere; a configuration without partitions gets one."""
    parts = list(configuration.partitions)
    what = draw(st.sampled_from(("queue", "queue", "queue", "queue", "partition", "add", "remove")))
    if what == "add" or not parts:
        parts.append(draw(partition()))
        return replace(configuration, partitions=tuple(parts))
    at = draw(st.integers(0, len(parts) - 1))
    if what == "remove":
        del parts[at]
    elif what == "partition":
        other = draw(partition())
        key = draw(st.sampled_from(("placement_rules", "limits", "preemption", "node_sort_policy", "queues")))
        parts[at] = replace(parts[at], **{key: getattr(other, key)})
    else:
        parts[at] = replace(parts[at], queues=draw(changed_queues(parts[at].queues or ())))
    return replace(configuration, partitions=tuple(parts))


@st.composite
def changed_queues(draw: DrawFn, queues: tuple[QueueConfig, ...]) -> tuple[QueueConfig, ...]:
    """The queues of one level with a change to one of them, to one below it, or in their number or order."""
    what = draw(st.sampled_from(("below", "below", "alter", "alter", "add", "remove", "turn")))
    if what == "add" or not queues:
        return (*queues, draw(queue(1)))
    at = draw(st.integers(0, len(queues) - 1))
    if what == "remove":
        return queues[:at] + queues[at + 1 :]
    if what == "turn":
        return queues[::-1]
    one = queues[at]
    new = replace(one, queues=draw(changed_queues(one.queues))) if what == "below" else draw(altered(one))
    return (*queues[:at], new, *queues[at + 1 :])


@st.composite
def altered(draw: DrawFn, one: QueueConfig) -> QueueConfig:
    """The queue with one setting of another, or as a leaf, or as a parent."""
    other = draw(queue(1))
    alterations: list[Callable[[], QueueConfig]] = [
        lambda: replace(one, parent=not one.parent),
        lambda: replace(one, parent=False, queues=()),  # to a leaf
        lambda: replace(one, queues=other.queues),
        lambda: replace(one, name=one.name.swapcase()) if one.name != "root" else one,
        lambda: replace(one, resources=other.resources),
        lambda: replace(one, max_applications=other.max_applications),
        lambda: replace(one, properties=other.properties),
        lambda: replace(one, submit_acl=other.submit_acl, admin_acl=other.admin_acl),
        lambda: replace(one, child_template=other.child_template),
        lambda: replace(one, limits=other.limits),
    ]
    return draw(st.sampled_from(alterations))()


# What breaks a text --------------------------------------------------------------------------------------------------


def bent(line: str) -> SearchStrategy[list[str]]:
    """What may stand where the line stood."""
    key, colon, value = line.partition(":")
    indent = line[: len(line) - len(line.lstrip())]
    return st.sampled_from(
        [
            [],
            [line, line],
            [f"{line}x"],
            [f"  {line}"],
            [line[2:]],
            [f"{key}{colon}"],
            [f"{key}s:{value}"],
            [f"{key}: [{value.strip()}]"],
            [f"{key}: -1"],
            [f"{key}: &x {value.strip()}"],
            [f"{key}: *x"],
            [f"{key}: '{value.strip()}"],
            [f"{key}: !!int {value.strip()}"],
            [f"{key}: a  b c"],
            [line, f"{indent}colour: blue"],
            [line, f"{indent}<<: {{name: a}}"],
            [line, "---", line],
            [f"{line}  # ü"],
            ["\x00"],
        ]
    )
