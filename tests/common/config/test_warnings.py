"""What `yunishard validate` warns of: each doubt, and texts that leave none."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from yunishard.common.config.problems import PROBLEMS_MAX, WARNING, Problem
from yunishard.common.config.validation import DEFAULT_TEXT, validate
from yunishard.common.config.warnings import LDAP, RESOLVERS, find_warnings
from yunishard.partition_worker.engine.user_resolution import GroupsUnknown, find_groups

TRACES = Path(__file__).parents[2] / "conformance" / "traces"
OPEN = {"submitacl": "*"}


def found(text: str) -> list[Problem]:
    return find_warnings(*validate(text))


def in_partition(**keys: object) -> list[Problem]:
    """Doubts about a partition, which has an open root unless it says otherwise."""
    return found(json.dumps({"partitions": [{"queues": [{"name": "root", **OPEN}], **keys}]}))


def in_queue(**keys: object) -> list[Problem]:
    """Doubts about a queue below an open root."""
    return in_partition(queues=[{"name": "root", **OPEN, "queues": [{"name": "a", **keys}]}])


def told(problems: list[Problem], *, at: str = "") -> list[str]:
    """Their messages, once it is sure where they are."""
    assert {problem.kind for problem in problems} <= {WARNING}
    assert [problem.path for problem in problems if not problem.path.endswith(at)] == []
    return [problem.message for problem in problems]


# Properties ---------------------------------------------------------------------------------------------------------


def test_a_value_that_is_not_taken_counts_as_the_default_which_is_named() -> None:
    (problem,) = in_queue(properties={"application.sort.policy": "Fair", "priority.policy": "FENCE"})
    assert problem.message == "'Fair' is not a valid value of application.sort.policy; the default 'fifo' is used"
    assert problem.hint == "it takes fifo, fair or stateaware, in lower case"
    assert problem.path == "partitions[0].queues[0].queues[0].properties.application.sort.policy"


def test_a_key_that_looks_like_a_property_means_nothing() -> None:
    (problem,) = in_queue(properties={"preemption.quota.delay": "10s", "team": "blue"})
    assert problem.message == "preemption.quota.delay means nothing to a queue"
    assert problem.hint == "did you mean quota.preemption.delay?"


def test_whoever_writes_the_property_as_well_means_something_else() -> None:
    assert in_queue(properties={"preemption.quota.delay": "10s", "quota.preemption.delay": "10s"}) == []


def test_properties_on_a_parent_are_for_its_children() -> None:
    leaf = {"name": "b"}
    assert in_queue(properties={"preemption.delay": "10s", "application.sort.policy": "fair"}, queues=[leaf]) == []


def test_the_properties_of_a_template_are_looked_at_too() -> None:
    assert told(
        in_queue(parent=True, childtemplate={"properties": {"priority.offset": "high"}}),
        at=".childtemplate.properties.priority.offset",
    ) == ["'high' is not a valid value of priority.offset; the default '0' is used"]


# Queues -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("zeros", [{"memory": "0"}, {"memory": "0Gi", "vcore": "000m"}, {"memory": " 0 k "}])
def test_a_maximum_of_zeros_is_unlimited(zeros: Mapping[str, str]) -> None:
    unlimited = ["a maximum with only zeros means unlimited"]
    assert told(in_queue(resources={"max": zeros}), at="].resources.max") == unlimited
    template = {"resources": {"max": zeros}}
    assert told(in_queue(parent=True, childtemplate=template), at=".childtemplate.resources.max") == unlimited


@pytest.mark.parametrize(
    "resources", [{"max": {"memory": "0", "vcore": "1"}}, {"max": {}}, {"guaranteed": {"gpu": "0"}}]
)
def test_zeros_beside_an_amount_and_guarantees_of_nothing_say_what_they_mean(resources: object) -> None:
    assert in_queue(resources=resources) == []


@pytest.mark.parametrize(
    ("acl", "message", "hint"),
    [
        ("bob,*", "'*' in an access control list counts nothing", "* stands alone"),
        ("bob,9to5,a:b dev,x.y", "'9to5', 'a:b', 'x.y' in an access control list counts nothing", "no user or group"),
        ("%%", "'%%' in an access control list counts nothing, and no entry is left", "no user or group"),
        ("ann\tdev", r"'ann\tdev' in an access control list counts nothing, and no entry is left", "one space"),
        (
            "ann, bob",
            "'bob' is read as groups: the first space ends the list of users",
            "for a list of users, write ann,bob",
        ),
        ("1,2,3,4,5,6,7", "'1', '2', '3', '4', '5' and 2 more in an access control list counts nothing", "no user"),
    ],
)
@pytest.mark.parametrize("key", ["submitacl", "adminacl"])
def test_an_entry_of_an_access_control_list_that_counts_nothing_is_told(
    key: str, acl: str, message: str, hint: str
) -> None:
    (problem,) = in_queue(**{key: acl})
    assert problem.message.startswith(message)
    assert problem.hint.startswith(hint)
    assert problem.path == f"partitions[0].queues[0].queues[0].{key}"


@pytest.mark.parametrize(
    "acl", ["", " ", "*", " *", "* ", "ann", "ann,bob", "ann,bob dev,ops", " dev", "ann ", "svc$", "a@b.c"]
)
def test_an_ordinary_access_control_list_leaves_no_doubt(acl: str) -> None:
    assert in_queue(submitacl=acl, adminacl=acl) == []


def test_a_template_of_a_leaf_is_for_nothing() -> None:
    template = {"maxapplications": 3}
    assert told(in_queue(childtemplate=template), at=".childtemplate") == [
        "queue a is a leaf, so its template is for nothing"
    ]
    assert in_queue(childtemplate=template, parent=True) == []
    assert in_queue(childtemplate={}) == []


def test_a_queue_with_queues_below_is_a_parent_whatever_is_written() -> None:
    message = "queue a is a parent all the same, because it has queues below it"
    assert told(in_queue(parent=False, queues=[{"name": "b"}]), at=".parent") == [message]
    assert in_queue(parent=False) == in_queue(queues=[{"name": "b"}]) == []


def test_a_root_beside_others_is_below_the_real_one() -> None:
    queues = [{"name": "Root", **OPEN}, {"name": "a", **OPEN}]
    assert told(in_partition(queues=queues), at="queues[0].name") == [
        "a queue called root below another one is root.root"
    ]
    assert len(in_queue(queues=[{"name": "root"}])) == 1


# Access -------------------------------------------------------------------------------------------------------------


def test_queues_that_nobody_may_submit_to_are_told_once_and_not_all_by_name() -> None:
    shut = [{"name": f"q{number}"} for number in range(8)]
    queues = [{"name": "Team", "queues": shut}, {"name": "open", "adminacl": "ann"}]
    (problem,) = in_partition(queues=[{"name": "root", "queues": queues}])
    listed = "root.team.q0, root.team.q1, root.team.q2, root.team.q3, root.team.q4 and 3 more"
    reason = "no submitacl or adminacl there or above grants anything"
    assert problem.message == f"no user may submit to {listed}: {reason}"
    assert problem.path == "partitions[0].queues[0].queues[0].queues[0]"


def test_each_partition_is_told_of() -> None:
    shut = {"queues": [{"name": "root", "queues": [{"name": "a", "submitacl": " "}]}]}
    problems = found(json.dumps({"partitions": [{"name": "one", **shut}, {"name": "two", **shut}]}))
    assert [problem.path[:13] for problem in problems] == ["partitions[0]", "partitions[1]"]


def test_an_inserted_root_lets_nobody_in() -> None:
    assert len(in_partition(queues=[{"name": "a"}])) == 1


def test_the_recovery_queue_is_shut_on_purpose() -> None:
    queues = [{"name": "@recovery@"}, {"name": "a", **OPEN}]
    assert in_partition(queues=[{"name": "root", "queues": queues}]) == []


# Rules --------------------------------------------------------------------------------------------------------------


def in_rule(**keys: object) -> list[Problem]:
    return in_partition(placementrules=[{"name": "user", "create": True, **keys}])


def test_a_filter_that_denies_in_capitals_allows() -> None:
    (message,) = told(in_rule(filter={"type": "DENY", "users": ["ann"]}), at="placementrules[0].filter.type")
    assert message == "'DENY' does not deny: the filter allows whom it lists"


@pytest.mark.parametrize(
    "entry",
    [
        {"type": "deny", "users": ["ann"]},
        {"type": "Allow"},
        {"groups": ["dev", "a.b"]},
        {"users": ["ann", "svc$"]},
        {"users": ["^dev.*"]},
        {"groups": ["(dev|ops)"]},
        {"groups": [".*dev$"]},
        {"users": ["dev.*"]},
    ],
)
def test_an_ordinary_filter_leaves_no_doubt(entry: object) -> None:
    assert in_rule(filter=entry) == []


def test_an_entry_of_a_longer_list_that_is_no_name_is_nobody() -> None:
    problems = in_rule(filter={"users": ["ann", "dev.*"], "groups": ["9to5", "dev"]})
    assert [(problem.path.rpartition(".filter")[2], problem.hint != "") for problem in problems] == [
        (".users[1]", True),
        (".groups[0]", False),
    ]
    assert told(problems) == ["'dev.*' cannot be a name", "'9to5' cannot be a name"]


@pytest.mark.parametrize(
    ("key", "entry", "whom", "hint"),
    [
        ("users", "svc$", "all names that end in svc, and not svc$", r"the name alone is ^svc\$$"),
        ("users", "dev*", "all names that have de in them", "names that begin with dev are ^dev"),
        ("groups", "d*", "all names", "names that begin with d are ^d"),
    ],
)
def test_one_entry_that_looks_like_a_name_but_is_an_expression_is_told(
    key: str, entry: str, whom: str, hint: str
) -> None:
    (problem,) = in_rule(parent={"name": "user", "create": True, "filter": {key: [entry]}})
    assert problem.message == f"'{entry}' is a regular expression: {whom}"
    assert problem.hint == hint
    assert problem.path == f"partitions[0].placementrules[0].parent.filter.{key}[0]"


def test_a_parent_that_may_be_created_below_a_rule_that_may_not_is_told() -> None:
    (problem,) = in_rule(create=False, parent={"name": "tag", "value": "namespace", "create": True})
    assert problem.message.startswith("create has no effect: rule user")
    assert problem.path == "partitions[0].placementrules[0].parent.create"


@pytest.mark.parametrize("create", [True, False])
def test_a_fixed_parent_that_is_not_there_and_may_not_be_created_never_matches(*, create: bool) -> None:
    (message,) = told(
        in_rule(create=True, parent={"name": "Fixed", "value": "Users", "create": False}), at="placementrules[0].parent"
    )
    assert message == "the rule matches nothing as long as there is no queue root.users, which it may not create"
    parent = {"name": "fixed", "value": "users", "create": create}
    queues = [{"name": "root", **OPEN, "queues": [{"name": "users", "parent": True}]}]
    rules = [{"name": "user", "create": True, "parent": parent}]
    assert in_partition(queues=queues, placementrules=rules) == []
    assert len(in_rule(parent=parent)) == (0 if create else 1)


def test_a_fixed_queue_is_looked_for_below_its_fixed_parents_ignoring_case() -> None:
    team = {"name": "Team", "parent": True, "queues": [{"name": "Ops", "parent": True}]}
    outer = {"name": "fixed", "value": "team", "create": True}
    inner = {"name": "fixed", "value": "OPS", "parent": outer}
    rules = [{"name": "user", "create": True, "parent": inner}]
    below: list[object] = [{"name": "root", **OPEN, "queues": [team]}]
    assert told(in_partition(queues=below, placementrules=rules)) == [
        "create has no effect: rule fixed may not create the queue below"
    ]
    del outer["create"]
    assert in_partition(queues=below, placementrules=rules) == []


def test_behind_a_rule_that_looks_at_the_application_nothing_is_known() -> None:
    tag = {"name": "tag", "value": "namespace"}
    assert in_rule(parent={"name": "fixed", "value": "nowhere", "parent": tag}) == []


def test_a_fixed_parent_of_root_is_another_queue() -> None:
    (message,) = told(in_rule(parent={"name": "fixed", "value": "root"}), at=".parent.value")
    assert message == "a parent rule that yields root means root.root"


# Resolvers ----------------------------------------------------------------------------------------------------------


def test_ldap_and_unknown_resolvers_are_told() -> None:
    path = "usergroupresolver.type"
    (message,) = told(in_partition(usergroupresolver={"type": "OS"}), at=path)
    assert message == "there is no resolver 'OS', so each user is in one group of the same name"
    (message,) = told(in_partition(usergroupresolver={"type": LDAP}), at=path)
    assert message == "groups are not looked up by LDAP: submissions that name no groups are rejected"


@pytest.mark.parametrize("kind", RESOLVERS)
def test_resolvers_that_there_are_leave_no_doubt(kind: str) -> None:
    assert in_partition(usergroupresolver={"type": kind}) == []
    try:
        groups = find_groups(kind, "testuser1")
    except GroupsUnknown:
        groups = ()
    assert (groups == ("testuser1",)) == (kind == "")


# Altogether ---------------------------------------------------------------------------------------------------------


def test_they_come_in_the_order_of_the_text_with_its_lines() -> None:
    text = """\
partitions:
  - queues:
      - name: root
        queues:
          - name: a
            submitacl: bob,*
          - name: b
    placementrules:
      - {name: user, filter: {type: DENY}}
"""
    assert [problem.line for problem in found(text)] == [6, 7, 9]


def test_there_are_never_more_than_people_read() -> None:
    queues = [{"name": f"q{number}", "submitacl": "1bad"} for number in range(2 * PROBLEMS_MAX)]
    assert len(in_partition(queues=[{"name": "root", **OPEN, "queues": queues}])) == PROBLEMS_MAX


def test_without_lines_there_are_doubts_too() -> None:
    configuration, _ = validate("partitions: [{queues: [{name: root, submitacl: 'bob,*'}]}]")
    assert [problem.line for problem in find_warnings(configuration)] == [0]


@pytest.mark.parametrize("text", ["", DEFAULT_TEXT])
def test_the_built_in_queues_leave_no_doubt(text: str) -> None:
    assert found(text) == []


@pytest.mark.parametrize("file", sorted(TRACES.glob("*.yaml")), ids=lambda file: file.stem)
def test_what_conformance_traces_register_with_leaves_no_doubt(file: Path) -> None:
    steps = yaml.safe_load(file.read_text())["steps"]
    texts = [step["register"]["config"] for step in steps if "config" in (step.get("register") or {})]
    assert [problem for text in texts for problem in found(text)] == []


def test_there_are_traces_to_look_at() -> None:
    assert len(list(TRACES.glob("*.yaml"))) > 50
