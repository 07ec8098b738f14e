"""Whoever may see a part of a partition is told nothing of the rest, whatever they ask, and all of their part.

What they may see is worked out here in the plainest way, from the lists of each queue and those above it.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject, SearchStrategy

from tests.builders import apps, asks, foreign, nodes, released
from tests.trial import Trial
from yunishard.common.config.acl import EVERYBODY, Acl
from yunishard.common.messages.query_messages import Actor, Query
from yunishard.partition_worker import explanations, queries
from yunishard.partition_worker.engine.durable_records import PreemptionRecord, VictimRecord

USERS = ("anna", "bert", "carl")
GROUPS = ("devs", "tops")
LONG = os.environ.get("PROPERTIES") == "long"
APPS = 8
NODES = 3
SIZES = st.lists(st.sampled_from((1, 7, 15, 90)), max_size=3)


@dataclass
class Scene:
    """A partition with queues at random, and who has what in it. No name is a part of another one."""

    trial: Trial
    paths: list[str]
    owners: dict[str, str] = field(default_factory=dict)
    """Of each application."""
    places: dict[str, str] = field(default_factory=dict)
    """The queue of each application, which may have gone since."""


def lists() -> SearchStrategy[Acl]:
    names = st.frozensets(st.sampled_from(USERS), max_size=1)
    groups = st.frozensets(st.sampled_from(GROUPS), max_size=1)
    few = st.builds(Acl, users=names, groups=groups)
    return st.just(Acl()) | st.just(Acl()) | st.just(Acl()) | few | st.just(EVERYBODY)


def leaves(paths: list[str]) -> list[str]:
    return [path for path in paths if not any(other.startswith(path + ".") for other in paths)]


def scene(data: DataObject) -> Scene:
    """Everything is put there while everybody may, and then the lists become others."""
    paths = ["root"]
    for number in range(data.draw(st.integers(2, 9))):
        paths.append(f"{data.draw(st.sampled_from(paths[-4:]))}.q{number}z")
    limits = " limit.user.*=apps:9 limit.group.devs=apps:9 limit.group.tops=memory:900"
    one = Scene(
        Trial("; ".join(path + (" parent" if path not in leaves(paths) else "") + limits for path in paths)), paths
    )
    one.trial.does(nodes(*(f"n{number} memory=20" for number in range(NODES))), foreign("f1z n1 memory=1 foreign=tagz"))
    submissions, wanted = [], ["app0z app0zk0z memory=1"]
    for number in range(APPS):
        name, queue = f"app{number}z", data.draw(st.sampled_from(leaves(paths)))
        one.owners[name], one.places[name] = data.draw(st.sampled_from(USERS)), queue
        asked = f"{queue}.gonez" if number == 1 else queue
        submissions.append(f"{name} {asked} user={one.owners[name]} groups={data.draw(st.sampled_from(GROUPS))}")
        for key, size in enumerate(data.draw(SIZES) if number > 1 else ()):
            wanted.append(f"{name} {name}k{key}z memory={size}")
    one.places["app1z"] = ""  # refused, so in no queue
    one.trial.does(apps(*submissions), asks(*wanted))
    one.trial.does(released("app0z app0zk0z"))
    one.trial.waits(60)
    one.trial.partition.preemptions.entries.extendleft(preemption(one, data) for _ in range(4))
    for queue in one.trial.partition.tree:
        queue.submit_acl, queue.admin_acl = data.draw(lists()), data.draw(lists()) if queue.parent else Acl()
    return one


def preemption(one: Scene, data: DataObject) -> PreemptionRecord:
    asker, *victims = data.draw(st.lists(st.sampled_from(list(one.owners)), min_size=2, max_size=4, unique=True))
    lost = tuple(VictimRecord(f"{name}k9z", name, one.places[name], "n1", {"memory": 1}, 5) for name in victims)
    quota = data.draw(st.booleans())
    who = ("", "", "") if quota else (asker, f"{asker}k8z", "n2")
    kind = "quota" if quota else "guaranteed"
    return PreemptionRecord(one.trial.now, kind, one.places[asker], *who, lost, len(lost), {"memory": 1}, {"memory": 5})  # type: ignore[arg-type]


# The plain rule -----------------------------------------------------------------------------------------------------


def above(path: str) -> Iterator[str]:
    while path:
        yield path
        path = path.rpartition(".")[0]


def may(one: Scene, viewer: Actor, path: str, *, administer: bool) -> bool:
    for level in above(path):
        queue = one.trial.partition.tree.find(level)
        lists = [] if queue is None else [queue.admin_acl] if administer else [queue.admin_acl, queue.submit_acl]
        if any(each.allows(viewer.user, viewer.groups) for each in lists):
            return True
    return False


def seen_applications(one: Scene, viewer: Actor) -> set[str]:
    return {
        name
        for name, path in one.places.items()
        if one.owners[name] == viewer.user or may(one, viewer, path, administer=True)
    }


def seen_queues(one: Scene, viewer: Actor) -> set[str]:
    return {path for path in one.paths if may(one, viewer, path, administer=False)}


# The answers --------------------------------------------------------------------------------------------------------


def questions(one: Scene) -> Iterator[tuple[str, dict[str, str]]]:
    for what in sorted(queries.REDACTED - {"health", "rules"}):
        yield what, {}
    for state in ("active", "completed", "rejected"):
        yield "applications", {"state": state}
        yield "applications", {"state": state, "limit": "3", "after": "app3z"}
    for path in one.paths:
        for what in ("queue", "queue-applications"):
            yield what, {"queue": path}
        yield "queue", {"queue": path, "subtree": ""}
        yield "applications", {"queue": path, "state": "active"}
    for name in one.owners:
        yield "application", {"application": name}
        yield "application", {"application": name, "queue": one.places[name]}
    for number in range(NODES):
        yield "node", {"node": f"n{number}"}
    for user in USERS:
        yield "user", {"user": user}
    for group in GROUPS:
        yield "group", {"group": group}

    yield from explained(one)


def explained(one: Scene) -> Iterator[tuple[str, dict[str, str]]]:
    for path in one.paths:
        yield "explain-queue", {"queue": path}
    for name in one.owners:
        yield "explain-application", {"application": name}
    for application in one.trial.partition.applications.values():
        for key in (*application.requests, *application.allocations):
            yield "explain-ask", {"application": application.application_id, "ask": key}
    for number in range(NODES):
        yield "explain-node", {"node": f"n{number}"}


def told(one: Scene, viewer: Actor | None, what: str, args: dict[str, str]) -> str:
    query = Query(what=what, name="default", args=args, viewer=viewer)
    if what in explanations.QUERIES:
        return explanations.answer_explanation(one.trial.partition, query, one.trial.now).body.decode()
    return queries.answer_partition_query(one.trial.partition, "rm-1", query).body.decode()


def viewers() -> SearchStrategy[Actor]:
    return st.builds(Actor, user=st.sampled_from((*USERS, "zoe")), groups=st.lists(st.sampled_from(GROUPS), max_size=1))


@settings(max_examples=3000 if LONG else 30)
@given(st.data(), viewers())
def test_no_answer_names_what_the_viewer_may_not_see(data: DataObject, viewer: Actor) -> None:
    one = scene(data)
    applications, queues = seen_applications(one, viewer), seen_queues(one, viewer)
    known = queues | {one.places[name] for name in applications}  # whoever has an application knows where
    named = {level for path in known for level in above(path)}
    secrets = [path.rpartition(".")[2] for path in one.paths[1:] if path not in named]
    secrets += [part for name in one.owners if name not in applications for part in (f'"{name}"', f"{name}k")]
    secrets += ["tagz"]
    for what, args in questions(one):
        answer = told(one, viewer, what, args)
        plain = [name for name in one.owners if name not in applications] if what in explanations.QUERIES else []
        assert not [secret for secret in (*secrets, *plain) if secret in answer], (what, args, answer)


@settings(max_examples=20)
@given(st.data(), viewers())
def test_the_viewer_is_told_all_that_they_may_see(data: DataObject, viewer: Actor) -> None:
    one = scene(data)
    tree = told(one, viewer, "queues", {})
    assert {path for path in one.paths if f'"queuename":"{path}"' in tree} == {
        "root",
        *(level for path in seen_queues(one, viewer) for level in above(path)),
    }
    found = "".join(
        told(one, viewer, "applications", {"state": state}) for state in ("active", "completed", "rejected")
    )
    assert {name for name in one.owners if f'"{name}"' in found} == seen_applications(one, viewer)


@settings(max_examples=20)
@given(st.data(), viewers())
def test_rights_begin_where_they_are_said_to_begin(data: DataObject, viewer: Actor) -> None:
    one = scene(data)
    highest = json.loads(told(one, viewer, "visible", {}))
    for name, administer in (("submit", False), ("admin", True)):
        covered = {path for path in one.paths if any(level in highest[name] for level in above(path))}
        assert covered == {path for path in one.paths if may(one, viewer, path, administer=administer)}
        assert all(not set(list(above(path))[1:]) & set(highest[name]) for path in highest[name])


@settings(max_examples=5)
@given(st.data())
def test_whoever_administers_the_root_sees_what_everybody_sees_where_nobody_is_asked(data: DataObject) -> None:
    one = scene(data)
    one.trial.partition.tree.root.admin_acl = Acl(users=frozenset({"zoe"}))
    for viewer in (Actor(user="zoe"), Actor(user="op", scheduler_admin=True)):
        for what, args in questions(one):
            assert told(one, viewer, what, args) == told(one, None, what, args)
