"""The impact of a configuration over REST: what the partitions are asked, and every answer."""

import httpx
import pytest

from tests.webservice.fakes import CHECKSUM, QUEUES, FakeLink, SilentLink, answer, loopback_users, partition, request
from yunishard.common.messages.query_messages import Answer, Query, ReadConfig
from yunishard.common.rest.catalogue import ROWS_MAX
from yunishard.webservice import config_impact
from yunishard.webservice.authn_authz import AccessControl

PATH = "/ws/v1/config/impact?rm=rm-1"
SMALLER = "partitions:\n- name: default\n  queues:\n  - name: a\n    resources: {max: {vcore: 1}}\n"
QUEUE_COLUMNS = ["queue", "leaf", "used", "runningApplications", "applications"]
USAGE_COLUMNS = ["name", "queue", "used", "runningApplications"]


def worker(query: Query) -> Answer:
    """One queue that uses two cores, and nobody with limits."""
    is_queues = query.what == "table-queues"
    columns, row = (QUEUE_COLUMNS, ["root.a", True, {"vcore": 2000}, 1, 1]) if is_queues else (USAGE_COLUMNS, [])
    rows = [row] if row else []
    return answer({"columns": columns, "rows": rows, "total": len(rows), "resources": ["vcore"]})


def measure(link: FakeLink, text: str, path: str = PATH) -> httpx.Response:
    return request(link, path, "POST", body=text.encode(), who=loopback_users(0))


def test_the_impact_has_differences_in_words_and_effects_on_running_work() -> None:
    link = FakeLink(partition(), worker=worker)
    found = measure(link, SMALLER)
    assert found.status_code == 200
    document = found.json()
    assert document["differences"] == [
        {
            "kind": "queue-changed",
            "path": "default root.a resources.max.vcore",
            "before": "",
            "after": "1",
            "text": "default root.a resources.max.vcore: nothing -> 1",
        }
    ]
    [effect] = document["effects"]
    assert (effect["code"], effect["queue"], effect["used"], effect["maximum"]) == (
        "queue-above-maximum",
        "root.a",
        2000,
        1000,
    )
    assert (document["checksum"], document["differenceCount"], document["effectCount"]) == (CHECKSUM, 1, 1)
    assert document["incomplete"] == []
    assert [(name, query.what) for name, query in link.asked] == [
        ("rm-1_default", f"table-{table}") for table in ("queues", "users", "groups")
    ]
    assert link.read_of == [("rm-1", ReadConfig(what="current"))]
    assert link.changes == []


def test_without_differences_no_partition_is_asked() -> None:
    link = FakeLink(partition(), worker=worker)
    document = measure(link, QUEUES + "# the same\n").json()
    assert (document["differences"], document["effects"], link.asked) == ([], [], [])


def test_a_removed_partition_is_an_effect() -> None:
    [effect] = measure(FakeLink(partition(), worker=worker), SMALLER.replace("default", "gpu")).json()["effects"]
    assert (effect["code"], effect["partition"]) == ("partition-removed", "default")


def test_a_partition_that_does_not_answer_is_named() -> None:
    document = measure(SilentLink(partition()), SMALLER).json()
    assert document["incomplete"] == ["partition default: Partition rm-1_default did not answer within 10 s"]
    assert document["effects"] == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [("", "the configuration is empty"), ("partitions: [{queues: [{name: a}, {name: A}]}]", "duplicate")],
)
def test_an_invalid_configuration_is_refused_with_its_problems(text: str, reason: str) -> None:
    found = measure(FakeLink(partition(), worker=worker), text)
    assert found.status_code == 400
    assert reason in found.json()["problems"][0]["message"]


def test_more_rows_than_the_bound_are_left_out_and_the_answer_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_impact, "USE_ROWS_MAX", 2)
    offsets = []

    def large(query: Query) -> Answer:
        found = worker(query)
        if query.what != "table-queues":
            return found
        offsets.append((query.args["limit"], query.args["offset"]))
        rows = [["root.a", True, {"vcore": 2000}, 1, 1]]
        return answer({"columns": QUEUE_COLUMNS, "rows": rows, "total": 9, "resources": ["vcore"]})

    document = measure(FakeLink(partition(), worker=large), SMALLER).json()
    assert document["incomplete"] == ["partition default: only the first 2 of 9 rows of queues are compared"]
    assert offsets == [(str(ROWS_MAX), "0"), (str(ROWS_MAX), "1")]


def test_a_long_answer_is_cut_and_has_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_impact, "SHOWN_MAX", 1)
    text = SMALLER.replace("vcore: 1}", "vcore: 1, memory: 1}") + "    maxapplications: 7\n"
    document = measure(FakeLink(partition(), worker=worker), text).json()
    assert (len(document["differences"]), document["differenceCount"]) == (1, 3)


def test_it_is_not_audited_as_a_change() -> None:
    link, who = FakeLink(partition(), worker=worker), AccessControl(loopback_users(1000))
    found = request(link, PATH, "POST", body=SMALLER.encode(), control=who)
    assert found.status_code == 200  # whoever may read the configuration, here everyone, may compare with it
    assert "x-request-id" not in found.headers
