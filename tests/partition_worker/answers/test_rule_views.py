"""The list of placement rules, in the words of the REST API."""

import json

from common.config.check import load
from common.query_messages import Query
from partition_worker.answers import queries
from partition_worker.engine.partition import Partition

REFERENCE = (
    '[{"name":"fixed","parameters":{"create":"false","qualified":"true","queue":"root.vip"},'
    '"filter":{"type":"allow","userList":["victor","vera"],"groupExp":"^vip-.*"}},'
    '{"name":"provided","parameters":{"create":"false"},"filter":{"type":"deny","userList":["mallory"]}},'
    '{"name":"tag","parameters":{"create":"true","tagName":"namespace"},'
    '"filter":{"type":"deny","userList":["mallory"]},'
    '"parentRule":{"name":"fixed","parameters":{"create":"true","qualified":"false","queue":"tenants"}}},'
    '{"name":"recovery","parameters":{"queue":"root.@recovery@"}}]\n'
)
"""As the reference shows the rules below."""

RULES = """
placementrules:
  - {name: fixed, value: root.vip, filter: {type: allow, users: [victor, vera], groups: ["^vip-.*"]}}
  - {name: provided, filter: {type: deny, users: [mallory]}}
  - name: tag
    value: Namespace
    create: true
    filter: {type: deny, users: [mallory]}
    parent: {name: fixed, value: Tenants, create: true}
"""


def shown(rules: str) -> bytes:
    indented = rules.strip().replace("\n", "\n    ")
    queues = "queues: [{name: root, submitacl: '*', queues: [{name: vip}]}]"
    text = f"partitions:\n  - name: default\n    {queues}\n    {indented}\n"
    partition = Partition(load(text).partitions[0], name="rm-1_default", now=0.0)
    answer = queries.answer(partition, "rm-1", Query(what="rules", name="default"))
    assert answer.status == 200
    return answer.body


def test_rules_are_shown_as_the_reference_shows_them() -> None:
    assert shown(RULES).decode() == REFERENCE


def test_without_configured_rules_the_implied_one_is_shown() -> None:
    assert [rule["name"] for rule in json.loads(shown("placementrules: []"))] == ["provided", "recovery"]


def test_of_rules_that_cannot_be_built_none_is_shown() -> None:
    assert json.loads(shown("placementrules: [{name: magic}]")) == []


def test_rules_for_groups_and_types_are_shown_like_all_others() -> None:
    rules = (
        "placementrules: [{name: secondarygroup, create: true, parent: {name: primarygroup}}, {name: ApplicationType}]"
    )
    assert json.loads(shown(rules))[:2] == [
        {
            "name": "secondarygroup",
            "parameters": {"create": "true"},
            "parentRule": {"name": "primarygroup", "parameters": {"create": "false"}},
        },
        {"name": "applicationtype", "parameters": {"create": "false"}},
    ]
