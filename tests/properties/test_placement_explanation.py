"""What is explained of a placement is what submitting the application then does, and explaining changes nothing."""

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from msgspec.structs import replace

from tests.properties.configurations import GROUPS, PLACES, USERS, accepted_values, text_of
from yunishard.common.config.model import Configuration
from yunishard.common.config.validation import load
from yunishard.common.messages.rm_messages import (
    AcceptedApplication,
    AddApplicationRequest,
    ApplicationRequest,
    RejectedApplication,
    UserGroupInformation,
)
from yunishard.partition_worker.engine.partition import Partition
from yunishard.partition_worker.engine.placement_explanation import ExplainedPlacement, explain_placement
from yunishard.partition_worker.engine.queues.queue import Queue
from yunishard.partition_worker.engine.recording import list_everything
from yunishard.partition_worker.engine.user_resolution import FORCED_TAG
from yunishard.partition_worker.placement_reasons import PlacementReason

NOW = 1_700_000_000.0
LATE = ("", "default", "root", "root.default", "root.@recovery@", "root.b.C-1.x", "a b", "root..a", "rooted.x")
TAGS = {
    "namespace": ("a", "root.b.c-1", "no.such", "a b", ""),
    "Team": ("root.team", "b"),
    "application.type": ("spark", "a.b"),
    FORCED_TAG: ("true", "no"),
    "namespace.resourcequota": ('{"resources": {"memory": {"value": 7}}}', "what"),
    "namespace.resourcemaxapps": ("3", "many"),
}


def tags() -> SearchStrategy[dict[str, str]]:
    one = st.sampled_from(sorted(TAGS)).flatmap(lambda key: st.tuples(st.just(key), st.sampled_from(TAGS[key])))
    return st.lists(one, max_size=3).map(dict)


def submissions() -> SearchStrategy[AddApplicationRequest]:
    return st.builds(
        AddApplicationRequest,
        application_id=st.sampled_from(("app-1", "app-2", "app-3", "app-4")),
        queue_name=st.sampled_from((*PLACES, *LATE)),
        ugi=st.builds(
            UserGroupInformation,
            user=st.sampled_from((*USERS, "", "a b", "testuser2")),
            groups=st.lists(st.sampled_from((*GROUPS, "qa", "c-1", "a b")), max_size=3),
        ),
        tags=tags(),
    )


def images(partition: Partition) -> tuple[object, ...]:
    """Everything that a submission may change."""
    return (
        list(list_everything(partition)),
        dict(partition.users.learned),
        [(queue.path, queue.once_limited.copy(), tuple(queue.children)) for queue in partition.tree],
        partition.tree.next_rank,
        partition.changes.has_others,
    )


def settings_of(queue: Queue) -> tuple[object, ...]:
    return queue.path, queue.max_applications, queue.maximum, queue.guaranteed, queue.managed, queue.policies


def compare(partition: Partition, new: AddApplicationRequest) -> ExplainedPlacement:
    before = images(partition)
    explained = explain_placement(partition, new)
    assert images(partition) == before
    paths = {queue.path for queue in partition.tree}
    parts = [effect.part for effect in partition.apply(ApplicationRequest(new=[new]), NOW)]
    rejected = [part.reason for part in parts if isinstance(part, RejectedApplication)]
    accepted = any(isinstance(part, AcceptedApplication) for part in parts)
    if explained.code is PlacementReason.USER_GROUPS_UNKNOWN:
        assert not rejected
        assert not accepted
        return explained
    assert ([explained.message] if explained.code else []) == rejected
    assert (explained.leaf is not None) == accepted
    created = [queue.path for queue in partition.tree if queue.path not in paths]
    assert explained.created == created
    deciding = [rule for rule in explained.trace.rules if rule.decides]
    if explained.leaf is not None:
        application = partition.applications[new.application_id]
        assert settings_of(explained.leaf) == settings_of(application.queue)
        assert explained.user == application.user
        assert [rule.path.lower() for rule in deciding] == [application.queue.path]
    for rule in explained.trace.rules:
        assert [check.passed for check in rule.checks[:-1]].count(False) == 0 or rule.view.name == "secondarygroup"
        assert not rule.decides or all(check.passed for check in rule.checks[-1:])
    return explained


def open_up(configuration: Configuration) -> Configuration:
    """The configuration with a root queue to which everybody may submit."""
    opened = (
        replace(one, queues=tuple(replace(root, submit_acl="*") for root in one.queues or ()))
        for one in configuration.partitions
    )
    return replace(configuration, partitions=tuple(opened))


def mostly_open() -> SearchStrategy[str]:
    values = accepted_values(partitions=1)
    return st.one_of(values, values.map(open_up), values.map(open_up)).map(text_of)


@settings(max_examples=300)
@given(mostly_open(), st.lists(submissions(), min_size=1, max_size=6), st.integers(0, 9))
def test_an_explained_placement_is_what_submitting_does(
    text: str, new: list[AddApplicationRequest], draining: int
) -> None:
    for config in load(text).partitions:
        partition = Partition(config, name="[rm]default", now=NOW)
        for number, queue in enumerate(partition.tree):
            if number and number == draining:
                queue.state = "Draining"
        for one in new:
            compare(partition, one)


def test_every_outcome_is_among_those_explained() -> None:
    """The generated submissions reach few of the rarer outcomes, so here is one of each."""
    config = load(
        """
partitions:
  - name: default
    placementrules:
      - {name: tag, value: namespace, create: true, parent: {name: fixed, value: root.tenants}}
      - {name: provided, create: true, filter: {type: deny, users: [eve]}}
    queues:
      - name: root
        queues:
          - {name: tenants, parent: true, submitacl: "*"}
          - {name: leaf, submitacl: "*"}
          - {name: closed, submitacl: "ann"}
"""
    ).partitions[0]
    found = []
    for number, (queue, user, tag) in enumerate(
        (
            ("root.leaf", "bob", ""),
            ("", "bob", "team"),
            ("", "bob", "a b"),
            ("root.leaf.x", "bob", ""),
            ("root.closed", "bob", ""),
            ("root.leaf", "eve", ""),
            ("root.leaf", "", ""),
        )
    ):
        partition = Partition(config, name="[rm]default", now=NOW)
        new = AddApplicationRequest(
            application_id=f"app-{number}",
            queue_name=queue,
            ugi=UserGroupInformation(user=user, groups=["dev"]),
            tags={"namespace": tag} if tag else {},
        )
        found.append(compare(partition, new).code)
    assert found == [
        None,
        None,
        PlacementReason.QUEUE_NAME_ILLEGAL,
        PlacementReason.QUEUE_NOT_CREATED,
        PlacementReason.RULES_UNMATCHED,
        PlacementReason.RULES_UNMATCHED,
        PlacementReason.USER_INVALID,
    ]
