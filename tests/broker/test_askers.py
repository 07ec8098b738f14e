"""Who is told what about another configuration."""

import msgspec

from broker.config_updates import UpdateRequest
from common.config.model import compute_checksum
from common.messages import Header
from common.query_messages import Answer
from common.rm_messages import ConfigurationUpdated, Refused, Resume
from tests.broker.house import GPU, PROXY, WEB, answers, is_prepare, news, registered
from tests.machines import ONE_QUEUE, PARTITION, RM, said, sent, two_partitions

TWO = two_partitions()
UPDATED = ConfigurationUpdated(checksum=compute_checksum(TWO), partitions=[PARTITION, GPU], lives={GPU: 1})


def test_an_rm_that_asked_is_answered_under_its_reference_and_hears_it_once() -> None:
    house = registered()
    asked = house.update(TWO)
    assert news(house.agree([*asked, *house.hello(GPU)])) == [(PROXY, "update", UPDATED)]
    assert house.switch.state.notes[-1] == "configuration of RM rm-1 changed by RM rm-1 (update)"


def test_an_rm_that_asked_for_what_it_has_is_answered_at_once() -> None:
    told = ConfigurationUpdated(checksum=compute_checksum(ONE_QUEUE), partitions=[PARTITION])
    assert registered().update(ONE_QUEUE) == [sent(PROXY, told, ref="update")]


def test_an_rm_that_has_another_connection_by_then_hears_it_there_too() -> None:
    house = registered()
    asked = [*house.update(TWO), *house.hello(GPU)]
    house.hear("rmproxy-2", Resume(), ref="again")
    assert news(house.agree(asked)) == [("rmproxy-2", "", UPDATED), (PROXY, "update", UPDATED)]


def test_an_rm_that_is_refused_hears_why_and_goes_on() -> None:
    house = registered()
    asked = house.update(TWO)
    refusal = Refused(code="configuration", reason="update of configuration failed: partition rm-1_default: no")
    assert sent(PROXY, refusal, ref="update") in house.vote(asked[0], "no")
    assert house.switch.state.notes[-1] == ("configuration change of RM rm-1 refused: partition rm-1_default: no")
    [again] = said(house.update("]"))
    assert isinstance(again, Refused)
    assert again.reason.startswith("update of configuration failed: ")


def test_an_rm_that_has_to_wait_is_told_by_a_code() -> None:
    house = registered()
    house.update(TWO)
    [refusal] = said(house.update(ONE_QUEUE))
    assert isinstance(refusal, Refused)
    assert refusal.code == "busy"


def test_a_front_end_is_answered_and_the_rm_hears_who_changed_it() -> None:
    house = registered()
    sends = house.agree([*house.change(TWO), *house.hello(GPU)])
    in_force = msgspec.json.encode(
        {
            "checksum": compute_checksum(TWO),
            "version": 2,
            "partitions": [PARTITION, GPU],
            "file": False,
            "followers": [],
            "warnings": [],
        }
    )
    assert sent(WEB, Answer(status=200, body=in_force), rm="", session="", ref="web 1") in sends
    [(to, ref, told)] = news(sends)
    assert (to, ref, told.author) == (PROXY, "", "alice")
    assert house.switch.state.notes[-1] == "configuration of RM rm-1 changed by alice (api)"


def test_a_front_end_that_is_refused_is_the_only_one_to_hear_of_it() -> None:
    house = registered()
    [asked, _] = house.change(TWO)
    sends = house.vote(asked, "no room")
    assert answers(sends) == [(409, "partition rm-1_default: no room")]
    assert [one for one in sends if one.to == PROXY] == []
    assert house.switch.state.notes[-1] == "configuration change of RM rm-1 refused: partition rm-1_default: no room"


def test_a_front_end_hears_of_each_problem_where_it_is() -> None:
    text = "partitions:\n  - name: default\n    colour: red\n    queues: [{name: root, colour: blue}]\n"
    [(status, body)] = answers(registered().change(text))
    assert status == 400
    problems = msgspec.json.decode(body)["problems"]
    assert [(one["line"], one["path"]) for one in problems] == [
        (3, "partitions[0].colour"),
        (4, "partitions[0].queues[0].colour"),
    ]


def test_only_owners_own_what_they_ask_for() -> None:
    origins = ("registration", "update", "file", "api", "rollback to 3")
    fields = {"source": "front-end", "rm": RM, "text": "", "author": "a", "call": Header(kind="ChangeConfig")}
    assert [UpdateRequest(origin=one, **fields).is_owner for one in origins] == [True, True, True, False, False]


def test_nothing_is_asked_of_a_worker_twice_for_a_refused_change() -> None:
    house = registered()
    first = [one for one in house.change(TWO) if is_prepare(one)]
    house.vote(first[0], "no")
    assert house.vote(first[0]) == []
