"""Reading and changing the configuration of a resource manager: messages to the broker, and every answer."""

import json
from pathlib import Path

import httpx
import pytest

from tests.webservice.fakes import CHECKSUM, QUEUES, FakeLink, answer, loopback_users, partition, request
from yunishard.common.config.acl import parse_acl
from yunishard.common.config.model import compute_checksum
from yunishard.common.config.problems import Problem
from yunishard.common.messages.query_messages import Answer, ChangeConfig, ReadConfig
from yunishard.common.settings import EffectiveSetting, Settings

CONFIG = "/ws/v1/config"
ONE = f"{CONFIG}?rm=rm-1"
ACCEPT_JSON = {"Accept": "application/json"}
CAPTURES = Path(__file__).parents[1] / "data" / "captures"
OTHER = "A" * 64
CHANGES = [("PUT", ONE), ("POST", ONE), ("POST", f"{CONFIG}/rollback?rm=rm-1&version=3")]


def link() -> FakeLink:
    return FakeLink(partition())


def two() -> FakeLink:
    return FakeLink(partition("rm-2", "gpu"), partition("rm-1"))


def refusing(status: int, body: bytes) -> FakeLink:
    return FakeLink(partition(), changer=lambda _: Answer(status=status, body=body))


def told(asked: FakeLink, path: str, method: str = "GET", **headers: str) -> tuple[int, str]:
    """What an administrator is refused with."""
    body = QUEUES.encode() if method != "GET" else b""
    response = request(asked, path, method, headers=headers, body=body, who=loopback_users(0))
    document = response.json()
    assert document["status_code"] == response.status_code
    assert document["description"] == document["message"]
    return response.status_code, document["message"]


# Reading ------------------------------------------------------------------------------------------------------------


def test_before_an_rm_registers_only_two_keys_are_shown() -> None:
    in_yaml, in_json = request(FakeLink(), CONFIG), request(FakeLink(), CONFIG, headers=ACCEPT_JSON)
    assert in_yaml.content == (CAPTURES / "unregistered-config-yaml.yaml").read_bytes()
    assert in_json.content == (CAPTURES / "unregistered-config-json.json").read_bytes()


def test_what_is_in_force_is_shown_as_it_is_understood() -> None:
    response = request(link(), CONFIG)
    assert response.status_code == 200
    assert response.text.startswith("partitions:\n    - name: default\n      queues:\n        - name: root\n")
    assert f"\nchecksum: {CHECKSUM}\nextra:\n    log.level: INFO\n" in response.text
    assert dict(response.headers) == {
        "content-type": "application/x-yaml; charset=UTF-8",
        "access-control-allow-origin": "*",
        "access-control-allow-methods": "GET, OPTIONS",
        "access-control-allow-headers": "X-Requested-With,Content-Type,Accept,Origin",
        "content-length": str(len(response.content)),
    }


@pytest.mark.parametrize("path", [CONFIG, ONE])
def test_only_the_very_word_for_json_gives_json(path: str) -> None:
    response = request(link(), path, headers=ACCEPT_JSON)
    assert response.headers["content-type"] == "application/json; charset=UTF-8"
    assert (response.json()["Checksum"], response.json()["Extra"]) == (CHECKSUM, {"log.level": "INFO"})
    listed = request(link(), path, headers={"Accept": "application/json, */*"})
    assert listed.headers["content-type"] == "application/x-yaml; charset=UTF-8"


def test_of_a_named_manager_the_text_is_given_as_it_was_written() -> None:
    asked = link()
    response = request(asked, ONE)
    assert (response.status_code, response.text) == (200, QUEUES)
    assert response.headers["etag"] == f'"{CHECKSUM}"'
    assert response.headers["vary"] == "Accept"
    assert asked.read_of == [("rm-1", ReadConfig(what="current"))]


@pytest.mark.parametrize("path", [ONE, f"{CONFIG}/version/3"])
def test_a_client_with_the_current_text_gets_304(path: str) -> None:
    response = request(link(), path, headers={"If-None-Match": f'W/"{CHECKSUM}"'})
    assert (response.status_code, response.content) == (304, b"")
    assert response.headers["etag"] == f'"{CHECKSUM}"'
    assert request(link(), path, headers={"If-None-Match": f'"{OTHER}"'}).status_code == 200


def test_a_compressed_text_varies_by_both() -> None:
    long = QUEUES + "#" * 2000
    document = {"checksum": CHECKSUM, "config": long}
    asked = FakeLink(partition(), reader=lambda _rm, _question: answer(document))
    response = request(asked, ONE, headers={"Accept-Encoding": "gzip"})
    assert (response.text, response.headers["vary"]) == (long, "Accept, Accept-Encoding")


def test_the_default_configuration_is_shown_before_an_rm_registers() -> None:
    asked = FakeLink()
    response = request(asked, f"{CONFIG}/default")
    assert (response.text, response.headers["etag"]) == (QUEUES, f'"{CHECKSUM}"')
    assert asked.read_of == [("", ReadConfig(what="default"))]


def test_an_earlier_text_is_found_by_its_number() -> None:
    asked = link()
    response = request(asked, f"{CONFIG}/version/3?rm=rm-1")
    assert (response.text, response.headers["etag"]) == (QUEUES, f'"{CHECKSUM}"')
    assert asked.read_of == [("rm-1", ReadConfig(what="version", version=3))]
    assert told(link(), f"{CONFIG}/version/4?rm=rm-1") == (404, "RM rm-1 has no version 4")


@pytest.mark.parametrize("number", ["0", "x", "-1", "1.5", "1e3", "٣", "9999999999", "03"])
def test_what_is_no_number_is_no_version(number: str) -> None:
    status, text = told(link(), f"{CONFIG}/version/{number}?rm=rm-1")
    assert (status, text.startswith("Version ")) == (400, True)


def test_the_history_is_passed_on() -> None:
    asked = link()
    response = request(asked, f"{CONFIG}/history")
    assert response.text == f'[{{"version":3,"checksum":"{CHECKSUM}"}}]\n'
    assert asked.read_of == [("rm-1", ReadConfig(what="history"))]


@pytest.mark.parametrize("path", [CONFIG, f"{CONFIG}/history", f"{CONFIG}/version/3"])
def test_of_several_rms_the_first_or_the_default_one_is_read(path: str) -> None:
    for default_rm, rm in (("", "rm-2"), ("rm-1", "rm-1"), ("x", "rm-2")):
        asked = two()
        assert request(asked, path, settings=Settings(default_rm=default_rm)).status_code == 200
        assert {name for name, _ in asked.read_of} == {rm}


@pytest.mark.parametrize(("method", "path"), [("PUT", CONFIG), ("POST", f"{CONFIG}/rollback?version=3")])
def test_of_several_rms_one_is_changed_only_if_the_request_or_the_setting_names_it(method: str, path: str) -> None:
    text = "There are several resource managers, say which with ?rm=, one of: rm-2, rm-1"
    asked, named, other = two(), Settings(default_rm="rm-1"), Settings(default_rm="x")
    assert told(asked, path, method) == (409, text)
    assert request(asked, path, method, body=QUEUES.encode(), who=loopback_users(0), settings=other).status_code == 409
    assert asked.changes == []
    response = request(asked, path, method, body=QUEUES.encode(), who=loopback_users(0), settings=named)
    assert (response.status_code, [name for name, _ in asked.changes]) == (200, ["rm-1"])


@pytest.mark.parametrize(
    ("method", "path"), [("GET", f"{CONFIG}/history"), ("GET", f"{CONFIG}/version/1"), ("PUT", CONFIG), ("GET", ONE)]
)
def test_without_managers_there_is_none_to_ask(method: str, path: str) -> None:
    unknown = FakeLink(reader=lambda rm, _: Answer(status=404, body=f"RM {rm} is not registered".encode()))
    text = "RM rm-1 is not registered" if path == ONE else "No resource manager is registered"
    assert told(unknown, path, method) == (404, text)


def test_a_name_that_no_manager_can_have_is_not_sent_on() -> None:
    asked = link()
    status, text = told(asked, f"{CONFIG}?rm={'x' * 5000}")
    assert (status, len(text) < 120, asked.read_of) == (404, True, [])


def test_a_malformed_answer_of_the_broker_is_an_error() -> None:
    odd = FakeLink(partition(), reader=lambda _rm, _question: answer({"config": 7}), changer=lambda _: answer([]))
    assert told(odd, ONE)[0] == told(odd, ONE, "PUT")[0] == 503


def test_an_unreadable_configuration_in_force_is_an_error() -> None:
    document = {"checksum": CHECKSUM, "config": "partitions: 7"}
    odd = FakeLink(partition(), reader=lambda _rm, _question: answer(document))
    status, text = told(odd, CONFIG)
    assert (status, text.startswith("the configuration in force cannot be read: line 1")) == (500, True)
    assert request(odd, ONE).text == "partitions: 7"


def test_settings_are_those_of_the_start_and_then_each_manager_s() -> None:
    settings = Settings(effective=(EffectiveSetting("rest", "127.0.0.1:9080", "--rest", "--rest"),))
    assert request(two(), "/ws/v1/settings", settings=settings).json() == [
        {"name": "rest", "value": "127.0.0.1:9080", "source": "--rest"},
        {"name": "rm/log.level", "value": "INFO", "source": "RM rm-1"},
        {"name": "rm/log.level", "value": "INFO", "source": "RM rm-2"},
    ]
    assert request(FakeLink(), "/ws/v1/settings").content == b"[]\n"


def test_settings_of_a_manager_without_effect_are_marked() -> None:
    extra = {"event.trackingEnabled": "maybe", "silence": "10s"}
    link = FakeLink(
        partition(), reader=lambda _rm, _question: answer({"checksum": CHECKSUM, "config": "", "extra": extra})
    )
    assert [(one["name"], one["value"], one["source"]) for one in request(link, "/ws/v1/settings").json()] == [
        ("rm/event.trackingEnabled", "true", "default (RM rm-1 sent 'maybe', which is not valid)"),
        ("rm/silence", "10s", "RM rm-1 (no effect)"),
    ]


# Changing -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["PUT", "POST"])
def test_an_administrator_gives_a_manager_another_configuration(method: str) -> None:
    asked = link()
    response = request(asked, ONE, method, body=QUEUES.encode(), who=loopback_users(0))
    document = (
        f'{{"checksum":"{CHECKSUM}","version":4,"partitions":["rm-1_default"],"file":true,"followers":["rm-2"],'
        '"warnings":[]}\n'
    )
    assert (response.status_code, response.text) == (200, document)
    assert response.headers["etag"] == f'"{CHECKSUM}"'
    assert asked.changes == [("rm-1", ChangeConfig(config=QUEUES, author="root", origin="api", expected=""))]


@pytest.mark.parametrize("path", [ONE, f"{CONFIG}/rollback?rm=rm-1&version=3"])
def test_an_edit_of_the_watched_file_is_overwritten_only_on_demand(path: str) -> None:
    asked = link()
    for query in ("", "&force=false", "&force=true"):
        method = "PUT" if path == ONE else "POST"
        body = QUEUES.encode() if path == ONE else b""
        assert request(asked, f"{path}{query}", method, body=body, who=loopback_users(0)).status_code == 200
    assert [wanted.overwrite for _, wanted in asked.changes if isinstance(wanted, ChangeConfig)] == [False, False, True]
    assert told(link(), f"{ONE}&force=yes", "PUT") == (400, "force is 'yes', expected true or false")


def test_a_listed_administrator_may_change_the_configuration() -> None:
    asked = link()
    request(asked, CONFIG, "PUT", body=QUEUES.encode(), who=loopback_users(admins=parse_acl("alice")))
    assert asked.changes == [("rm-1", ChangeConfig(config=QUEUES, author="alice"))]


@pytest.mark.parametrize(("method", "path"), CHANGES)
def test_other_users_may_not_change_the_configuration(method: str, path: str) -> None:
    asked = link()
    response = request(asked, path, method, body=QUEUES.encode())
    assert response.status_code == 403
    assert response.json()["message"] == (
        "User 'alice' is not a scheduler administrator, and only they may do this."
        " Ask one of them, or to be named by the setting scheduler-admins"
    )
    assert (asked.changes, asked.read_of) == ([], [])


@pytest.mark.parametrize(("method", "path"), CHANGES)
@pytest.mark.parametrize("header", [f'"{OTHER}"', OTHER, OTHER.lower()])
def test_a_change_can_depend_on_the_version_in_force(method: str, path: str, header: str) -> None:
    asked = refusing(412, f"the checksum in force is {CHECKSUM}".encode())
    assert told(asked, path, method, **{"If-Match": header}) == (412, f"the checksum in force is {CHECKSUM}")
    (changed,) = [wanted for _, wanted in asked.changes]
    assert isinstance(changed, ChangeConfig)
    assert changed.expected == OTHER


@pytest.mark.parametrize(("method", "path"), CHANGES)
def test_a_condition_that_cannot_be_understood_changes_nothing(method: str, path: str) -> None:
    asked = link()
    assert told(asked, path, method, **{"If-Match": '""'})[0] == 400
    assert asked.changes == []


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (400, "neither JSON nor right"),
        (404, "RM rm-1 is not registered"),
        (409, "partition default: queue root.a has applications"),
        (503, "the record cannot be written"),
    ],
)
def test_a_refusal_of_the_broker_is_passed_on(status: int, text: str) -> None:
    assert told(refusing(status, text.encode()), ONE, "PUT") == (status, text)


def test_all_that_is_wrong_is_listed_and_the_first_is_the_message() -> None:
    problems = [
        Problem(line=3, path="partitions[0].queues[0].name", message="bad name", kind="queue-name", hint="shorter"),
        Problem(message="and more", kind="acl"),
    ]
    body = answer({"problems": [{}]}).body  # cannot be read, so it is told as it came
    assert told(refusing(400, body), ONE, "PUT")[1] == body.decode()
    listed = [{name: getattr(one, name) for name in ("line", "path", "message", "hint", "kind")} for one in problems]
    refused = refusing(400, json.dumps({"problems": listed}).encode())
    response = request(refused, ONE, "PUT", body=b"x", who=loopback_users(0))
    assert response.status_code == 400
    assert response.json() == {
        "status_code": 400,
        "message": "bad name",
        "description": "bad name",
        "problems": listed,
    }


@pytest.mark.parametrize(("body", "text"), [(b"", "empty"), (b" \n", "empty"), (b"a: \xff", "not UTF-8")])
def test_a_body_without_a_text_is_refused_here(body: bytes, text: str) -> None:
    asked = link()
    response = request(asked, ONE, "PUT", body=body, who=loopback_users(0))
    assert response.status_code == 400
    assert text in response.json()["problems"][0]["message"]
    assert asked.changes == []


def test_going_back_gives_the_earlier_text_again() -> None:
    asked = link()
    response = request(asked, f"{CONFIG}/rollback?version=3", "POST", who=loopback_users(0))
    assert (response.status_code, response.json()["version"]) == (200, 4)
    assert (response.json()["file"], response.json()["followers"]) == (True, ["rm-2"])
    assert asked.read_of == [("rm-1", ReadConfig(what="version", version=3))]
    assert asked.changes == [("rm-1", ChangeConfig(config=QUEUES, author="root", origin="rollback to 3"))]


@pytest.mark.parametrize(("query", "status"), [("", 400), ("version=x", 400), ("version=0", 400), ("version=9", 404)])
def test_there_is_no_way_back_to_what_never_was(query: str, status: int) -> None:
    asked = link()
    assert told(asked, f"{CONFIG}/rollback?{query}", "POST")[0] == status
    assert asked.changes == []


# Limits of one queue --------------------------------------------------------------------------------------------------

LIMIT = "/ws/v1/partition/default/queue/root.a/limit"
LIMITED = QUEUES + "    resources:\n      max:\n        vcore: 4\n"


def limits(asked: FakeLink, path: str = LIMIT, body: object = None, **headers: str) -> httpx.Response:
    content = json.dumps({"max": {"vcore": "4"}} if body is None else body).encode()
    return request(asked, path, "POST", headers=headers, body=content, who=loopback_users(0))


def test_a_limit_is_changed_in_the_text_in_force() -> None:
    asked = link()
    response = limits(asked)
    assert response.status_code == 200
    [(rm, change)] = asked.changes
    assert rm == "rm-1"
    assert isinstance(change, ChangeConfig)
    assert (change.config, change.origin, change.expected) == (LIMITED, "limit of root.a", CHECKSUM)
    found = response.json()
    assert found["diff"].splitlines()[-3:] == ["+    resources:", "+      max:", "+        vcore: 4"]
    assert (found["version"], found["base"], found["dryRun"], found["queue"]) == (4, CHECKSUM, False, "root.a")
    assert response.headers["etag"] == f'"{compute_checksum(LIMITED)}"'


def test_a_dry_run_shows_the_difference_and_changes_nothing() -> None:
    asked = link()
    found = limits(asked, f"{LIMIT}?dryRun=true", {"maxApplications": 0, "max": {"vcore": "4"}}).json()
    assert "+    maxapplications: 0" in found["diff"]
    assert (found["version"], found["dryRun"], asked.changes) == (0, True, [])


def test_a_dry_run_shows_what_would_be_refused() -> None:
    response = limits(link(), f"{LIMIT}?dryRun=true", {"max": {"vcore": "x"}})
    assert response.status_code == 400
    assert response.json()["problems"][0]["line"] == 7


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({}, "The body names no limit"),
        ({"max": {"vcore": 4}}, "The body is not a JSON object of limits"),
        ({"maxApplications": -1}, "The body is not a JSON object of limits"),
        ({"max": {"x" * 70_000: "1"}}, "The body has at most 65536 bytes"),
    ],
)
def test_a_body_without_limits_is_refused(body: object, text: str) -> None:
    asked = link()
    response = limits(asked, body=body)
    assert response.status_code in (400, 413)
    assert response.json()["message"].startswith(text)
    assert asked.changes == []


def test_a_queue_that_is_not_in_the_configuration_is_refused() -> None:
    asked = FakeLink(partition(), worker=lambda query: Answer(status=404, body=b"Queue not found"))
    assert limits(asked, LIMIT.replace("root.a", "root.x")).status_code == 404
    dynamic = FakeLink(partition(), worker=lambda query: Answer(status=200, body=b"{}"))
    response = limits(dynamic, LIMIT.replace("root.a", "root.x"))
    assert response.status_code == 409
    assert "does not define queue root.x: if it is dynamic" in response.json()["message"]
    assert dynamic.changes == []


def test_a_limit_is_changed_only_if_the_expected_configuration_is_in_force() -> None:
    asked = link()
    assert limits(asked, **{"If-Match": OTHER}).status_code == 412
    assert asked.changes == []
    assert limits(asked, **{"If-Match": CHECKSUM}).status_code == 200


def test_only_scheduler_administrators_change_limits() -> None:
    assert request(link(), LIMIT, "POST", body=b'{"maxApplications": 1}').status_code == 403
