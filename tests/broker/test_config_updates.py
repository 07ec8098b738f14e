"""Another configuration for partitions that stay (`test_config_update_partitions.py`: that come and go)."""

import msgspec
import pytest
from msgspec.structs import replace

from tests.broker.bench import GPU, PATIENT, PROXY, WEB, BrokerBench, answers, is_prepare, kinds, news, registered
from tests.machines import ONE_QUEUE, PARTITION, RM, arrives, config_of, said, sent, two_partitions
from yunishard.broker.config_rollout import ROLLOUT_MAX_S
from yunishard.broker.config_updates import UpdateRequest
from yunishard.common.config.model import compute_checksum
from yunishard.common.messages.control_messages import (
    AbortConfig,
    CommitConfig,
    ConfigVersion,
    ConfigVote,
    PrepareConfig,
    RebaseVersion,
    Recorded,
    Settings,
)
from yunishard.common.messages.kinds import Header
from yunishard.common.messages.query_messages import Answer, ChangeConfig
from yunishard.common.messages.rm_messages import ConfigurationUpdated, Refused, Resume, UpdateConfiguration
from yunishard.common.messages.wire import NEVER, Incoming, Outgoing, decode_body
from yunishard.common.names import RECORD, lease_name
from yunishard.common.settings import replace_settings

TWO_QUEUES = ONE_QUEUE.replace("{name: batch}", "{name: batch}, {name: more}")
TWO = two_partitions()
TWO_MORE = TWO.replace("{name: batch}", "{name: batch}, {name: more}")
RESTARTED = [
    (PARTITION, "PrepareConfig"),
    (PARTITION, "CommitConfig"),
    ("rmproxy", "PartitionRestarted"),
    (PARTITION, "PrepareConfig"),
]


def _yes(bench: BrokerBench, asked: Outgoing) -> Incoming:
    vote = ConfigVote(rollout=decode_body(PrepareConfig, asked.body).rollout)
    epoch = bench.epoch(asked.to)
    return arrives(lease_name(asked.to, epoch), vote, session="", partition=asked.to, epoch=epoch)


def commits(sends: list[Outgoing]) -> list[str]:
    return [one.to for one in sends if one.header.kind == "CommitConfig"]


# The way of a change ------------------------------------------------------------------------------------------------


def test_a_worker_that_runs_is_asked_whether_it_could_change_and_commits_what_it_voted_for() -> None:
    bench = registered()
    asked = sent(PARTITION, PrepareConfig(rollout=2, config=config_of(TWO_QUEUES), live=True), partition=PARTITION)
    assert bench.update(TWO_QUEUES) == [asked]
    assert bench.text() == ONE_QUEUE
    assert bench.vote(asked)[0] == sent(PARTITION, CommitConfig(rollout=2), partition=PARTITION)
    assert bench.text() == TWO_QUEUES
    assert bench.broker.deadline == NEVER


def test_it_is_recorded_before_anybody_hears_of_it() -> None:
    bench = registered()
    [asked] = bench.change(TWO_QUEUES)
    bench.now = 9.0
    bench.vote(asked)
    assert bench.record[-1] == ConfigVersion(
        number=2,
        checksum=compute_checksum(TWO_QUEUES),
        at_ns=1_000_000_000,
        author="alice",
        origin="api",
        base=compute_checksum(ONE_QUEUE),
        size=len(TWO_QUEUES),
        config=TWO_QUEUES,
    )


def test_all_workers_must_vote_before_any_commits() -> None:
    bench = registered(TWO)
    first, second = bench.update(TWO_MORE)
    assert bench.vote(second) == []
    assert commits(bench.vote(first)) == [PARTITION, GPU]


def test_one_no_leaves_all_partitions_on_the_old_configuration() -> None:
    bench = registered(TWO)
    first, second = bench.change(TWO_MORE)
    bench.vote(first)
    *aborts, answer = bench.vote(second, "no room")
    assert aborts == [
        sent(PARTITION, AbortConfig(rollout=2), partition=PARTITION),
        sent(GPU, AbortConfig(rollout=2), partition=GPU),
    ]
    assert answers([answer]) == [(409, "partition rm-1_gpu: no room")]
    assert bench.text() == TWO
    assert len(bench.record) == 1
    assert bench.vote(first) == []


def test_workers_that_do_not_answer_in_time_refuse_it() -> None:
    bench = registered(TWO)
    bench.vote(bench.change(TWO_MORE)[0])
    assert bench.broker.deadline == 1.0 + ROLLOUT_MAX_S
    assert bench.broker.tick(ROLLOUT_MAX_S) == []
    sends = bench.broker.tick(1.0 + ROLLOUT_MAX_S)
    assert answers(sends) == [(503, "no answer from the workers of rm-1_gpu within 20 s")]
    assert bench.text() == TWO
    assert bench.broker.deadline == NEVER


def test_a_version_that_cannot_be_recorded_changes_nothing_and_is_told() -> None:
    bench = registered(TWO)
    bench.disk_problem = "disk full"
    sends = bench.agree(bench.change(TWO_MORE))
    assert answers(sends) == [(503, "the configuration cannot be recorded: disk full")]
    assert commits(sends) == []
    assert [to for to, kind in kinds(sends) if kind == "AbortConfig"] == [PARTITION, GPU]
    assert bench.text() == TWO
    bench.disk_problem = ""
    assert answers(bench.agree(bench.change(TWO_MORE)))[0][0] == 200
    assert bench.record[-1].number == 2


def test_what_is_decided_is_not_given_up_however_long_the_disk_takes() -> None:
    bench = registered()
    [asked] = bench.change(TWO_QUEUES)
    [version] = bench.broker.handle(_yes(bench, asked), 1.0)
    assert bench.broker.deadline == NEVER
    assert bench.broker.tick(1.0 + ROLLOUT_MAX_S) == []
    assert answers(bench.recorded([version]))[0][0] == 200


def test_what_the_record_says_of_another_version_is_nothing() -> None:
    bench = registered()
    [asked] = bench.change(TWO_QUEUES)
    [version] = bench.broker.handle(_yes(bench, asked), 1.0)
    for number in (1, 3):
        assert bench.hear(RECORD, Recorded(number=number), session="") == []
    assert bench.hear(PARTITION, Recorded(number=2), session="")[0].header.kind == "Refused"
    assert answers(bench.recorded([version]))[0][0] == 200


def test_a_vote_on_another_change_does_not_count() -> None:
    bench = registered()
    [asked] = bench.change(TWO_QUEUES)
    early = sent(PARTITION, PrepareConfig(rollout=1, config=config_of()), partition=PARTITION)
    assert bench.vote(early) == []
    assert bench.vote(early, "no") == []
    assert commits(bench.vote(asked)) == [PARTITION]


# What cannot begin --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [("]", "not YAML"), ("partitions: [{name: default}]", "queue config is not set")],
)
def test_a_text_that_is_no_configuration_is_refused_with_every_problem(text: str, words: str) -> None:
    bench = registered()
    [(status, body)] = answers(bench.change(text))
    assert status == 400
    assert body.startswith('{"problems":[{')
    assert words in body
    assert bench.text() == ONE_QUEUE


def test_rules_that_cannot_be_built_are_refused_for_a_partition_that_runs_with_their_place() -> None:
    bench = registered()
    rules = "name: default\n    placementrules: [{name: magic}]"
    [(status, body)] = answers(bench.change(ONE_QUEUE.replace("name: default", rules)))
    assert status == 400
    assert '"path":"partitions[0].placementrules[0]' in body
    new = TWO.replace("name: gpu", "name: gpu, placementrules: [{name: magic}]")
    assert [one.to for one in bench.change(new) if is_prepare(one)] == [PARTITION]


def test_a_partition_with_the_usual_name_of_another_rms_gets_another_one() -> None:
    bench = registered()
    bench.register(two_partitions("b_c", "x"), rm="a")
    bench.register(two_partitions("y", "z"), rm="a_b")
    asked = bench.change(two_partitions("c", "y"), rm="a_b")
    [(status, body)] = answers(bench.agree([*asked, *bench.hello("a_b_c~3")]))
    assert status == 200
    assert '"partitions":["a_b_c~3","a_b_y"]' in body


def test_a_name_that_another_rm_is_about_to_have_is_taken() -> None:
    bench = BrokerBench()
    bench.register(two_partitions("y", "z"), rm="a_b")
    bench.register(two_partitions("v", "w"), rm="a")
    asked = bench.change(two_partitions("v", "b_c"), rm="a")
    others = bench.change(two_partitions("c", "y"), rm="a_b")
    bench.agree([*others, *bench.hello("a_b_c~3")])
    assert list(bench.broker.registry.sessions["a_b"].configs) == ["a_b_c~3", "a_b_y"]
    bench.agree([*asked, *bench.hello("a_b_c")])
    assert bench.broker.registry.owner("a_b_c") is bench.broker.registry.sessions["a"]


def test_an_rm_that_is_not_registered_has_no_configuration_to_change() -> None:
    text = "RM rm-9 has no active partitions, make sure it is registered"
    assert answers(registered().change(TWO_QUEUES, rm="rm-9")) == [(404, text)]


@pytest.mark.parametrize("again", [TWO_QUEUES, TWO])
def test_a_second_change_while_one_is_under_way_is_told_to_wait(again: str) -> None:
    bench = registered()
    [asked] = bench.change(TWO_QUEUES)
    text = "another configuration of RM 'rm-1' is under way, try again when it is done"
    assert answers(bench.change(again)) == [(409, text)]
    assert answers(bench.vote(asked))[0][0] == 200
    assert bench.text() == TWO_QUEUES


def test_a_change_during_a_registration_is_told_to_wait_and_the_other_way_round() -> None:
    bench = registered()
    [asked] = bench.call(session="session-2")
    text = "a registration of RM 'rm-1' is under way, try again when it is done"
    assert answers(bench.change(TWO_QUEUES)) == [(409, text)]
    bench.vote(asked, "no")
    bench.change(TWO_QUEUES)
    [refusal] = bench.call(session="session-3")
    assert refusal.header.kind == "Refused"


def test_changes_of_two_rms_do_not_wait_for_each_other() -> None:
    bench = registered()
    bench.register(rm="rm-2", session="another")
    asked = [*bench.change(TWO_QUEUES), *bench.change(TWO_QUEUES, rm="rm-2")]
    assert [status for status, _ in answers(bench.agree(asked))] == [200, 200]


def test_a_change_of_what_is_no_longer_in_force_is_refused_with_the_checksum_that_is() -> None:
    bench = registered()
    text = f"the configuration in force has the checksum {compute_checksum(ONE_QUEUE)}, not {compute_checksum(TWO)}"
    assert answers(bench.change(TWO_QUEUES, expected=compute_checksum(TWO))) == [(412, text)]
    assert [one for one in bench.change(TWO_QUEUES, expected=compute_checksum(ONE_QUEUE)) if is_prepare(one)]


def test_what_is_in_force_already_is_granted_at_once_and_nobody_else_hears_of_it() -> None:
    bench = registered()
    sends = bench.change(ONE_QUEUE)
    assert [status for status, _ in answers(sends)] == [200]
    assert news(sends) == []
    assert len(bench.record) == 1


def test_a_hierarchy_that_is_enforced_refuses_it() -> None:
    queues = "queues: [{name: root, queues: [{name: %s, queues: [{name: dev}]}]}]"
    moved = f"partitions: [{{name: default, {queues % 'a'}}}, {{name: gpu, {queues % 'b'}}}]"
    for mode, status in (("off", 200), ("warn", 200), ("enforce", 400)):
        bench = BrokerBench(settings=replace_settings(PATIENT, {"same_hierarchy": mode}))
        bench.register(TWO)
        sends = bench.agree(bench.change(moved))
        assert answers(sends)[0][0] == status
        assert any("queue dev is below root.b here" in line for line in bench.broker.state.warnings) == (mode == "warn")


# Whose text it is ---------------------------------------------------------------------------------------------------


def test_a_change_by_the_rm_is_its_own_text_and_one_over_rest_stands_on_it() -> None:
    bench = registered()
    bench.agree(bench.change(TWO_QUEUES))
    assert bench.record[-1].base == compute_checksum(ONE_QUEUE)
    bench.register(session="session-2")
    assert bench.text() == TWO_QUEUES
    bench.agree(bench.update(ONE_QUEUE, session="session-2"))
    assert (bench.record[-1].base, bench.record[-1].origin) == (compute_checksum(ONE_QUEUE), "update")
    bench.register(session="session-3")
    assert bench.text() == ONE_QUEUE


def test_an_rm_that_comes_to_have_what_was_changed_over_rest_owns_it() -> None:
    bench = registered()
    bench.agree(bench.change(TWO_QUEUES))
    rebase, answer = bench.update(TWO_QUEUES)
    assert (rebase.to, decode_body(RebaseVersion, rebase.body)) == (
        RECORD,
        RebaseVersion(base=compute_checksum(TWO_QUEUES)),
    )
    assert answer.header.kind == "ConfigurationUpdated"
    bench.register(TWO_QUEUES, session="session-2")
    assert bench.text() == TWO_QUEUES
    bench.register(session="session-3")
    assert bench.text() == ONE_QUEUE


def test_a_rollback_is_a_change_like_any_other() -> None:
    bench = registered()
    bench.agree(bench.change(TWO_QUEUES))
    bench.agree(bench.change(ONE_QUEUE, origin="rollback to 1"))
    assert (bench.record[-1].number, bench.record[-1].origin) == (3, "rollback to 1")
    bench.register(session="session-2")
    assert bench.text() == ONE_QUEUE


def test_an_rm_that_sends_no_text_gets_that_of_the_core() -> None:
    bench = BrokerBench(default_config=TWO_QUEUES)
    bench.register()
    bench.agree(bench.update(""))
    assert bench.text() == TWO_QUEUES


# Settings -----------------------------------------------------------------------------------------------------------


def test_settings_of_the_rm_count_even_if_its_configuration_is_refused() -> None:
    bench = registered(TWO)
    sends = bench.update("]", a="1")
    told = [one for one in sends if one.header.kind == "Settings"]
    assert told == [sent(name, Settings(values={"a": "1"}), partition=name) for name in (PARTITION, GPU)]
    assert sends[-1].header.kind == "Refused"
    assert bench.broker.registry.sessions[RM].extra == {"a": "1"}


def test_settings_are_told_only_when_they_change_and_also_when_none_are_left() -> None:
    bench = registered()
    assert kinds(bench.update(ONE_QUEUE, a="1"))[0] == (PARTITION, "Settings")
    assert (PARTITION, "Settings") not in kinds(bench.update(ONE_QUEUE, a="1"))
    [settings, _] = bench.update(ONE_QUEUE)
    assert settings == sent(PARTITION, Settings(values={}), partition=PARTITION)


def test_settings_of_a_session_that_is_unknown_are_not_taken() -> None:
    bench = registered()
    assert kinds(bench.update(ONE_QUEUE, rm="rm-9", a="1")) == [("rmproxy", "Refused")]
    earlier = UpdateConfiguration(rm_id=RM, extra_config={"a": "1"})
    assert kinds(bench.hear("rmproxy", earlier, session="earlier")) == [("rmproxy", "Refused")]
    assert bench.broker.registry.sessions[RM].extra == {}


# Workers that are started again -------------------------------------------------------------------------------------


def test_one_that_restarts_before_its_vote_begins_with_the_old_and_is_asked_again() -> None:
    bench = registered(TWO)
    first, second = bench.change(TWO_MORE)
    sends = bench.lost(PARTITION)
    assert kinds(sends) == RESTARTED
    assert sends[-1] == Outgoing(first.to, replace(first.header, life=1), first.body)
    bench.vote(second)
    assert commits(bench.vote(first)) == [PARTITION, GPU]


def test_one_that_restarts_after_its_vote_has_not_voted() -> None:
    bench = registered(TWO)
    first, second = bench.change(TWO_MORE)
    bench.vote(first)
    bench.hello(PARTITION)
    assert bench.vote(second) == []
    assert commits(bench.vote(first)) == [PARTITION, GPU]


def test_one_that_restarts_while_it_is_recorded_gets_the_old_and_then_the_new() -> None:
    bench = registered()
    [asked] = bench.change(TWO_QUEUES)
    [version] = bench.broker.handle(_yes(bench, asked), 1.0)
    assert version.to == RECORD
    assert bench.lost(PARTITION) == []
    assert bench.broker.handle(_yes(bench, asked), 1.0) == []
    sends = kinds(bench.recorded([version]))
    assert sends[:5] == [*RESTARTED, (PARTITION, "CommitConfig")]
    assert bench.text() == TWO_QUEUES


def test_one_that_restarts_after_the_commit_begins_with_the_new() -> None:
    bench = registered()
    bench.agree(bench.change(TWO_QUEUES))
    asked, *_ = bench.lost(PARTITION)
    assert decode_body(PrepareConfig, asked.body).config == config_of(TWO_QUEUES)
    assert asked.header.life == 1


def test_one_that_restarted_goes_on_with_the_old_when_the_change_is_refused_and_its_rm_hears_of_one_restart() -> None:
    bench = registered(TWO)
    _, second = bench.change(TWO_MORE)
    bench.lost(PARTITION)
    sends = bench.vote(second, "no")
    assert [kind for _, kind in kinds(sends)] == ["AbortConfig", "AbortConfig", "Answer"]
    assert bench.broker.registry.sessions[RM].generations == {PARTITION: 1}


UPDATED = ConfigurationUpdated(
    checksum=compute_checksum(TWO), partitions=[PARTITION, GPU], lives={GPU: 1}, configuration_number=2
)


def test_an_rm_that_asked_is_answered_under_its_reference_and_hears_it_once() -> None:
    bench = registered()
    asked = bench.update(TWO)
    assert news(bench.agree([*asked, *bench.hello(GPU)])) == [(PROXY, "update", UPDATED)]
    assert bench.broker.state.notes[-1] == "configuration of RM rm-1 changed by RM rm-1 (update)"


def test_an_rm_that_asked_for_what_it_has_is_answered_at_once() -> None:
    told = ConfigurationUpdated(checksum=compute_checksum(ONE_QUEUE), partitions=[PARTITION], configuration_number=1)
    assert registered().update(ONE_QUEUE) == [sent(PROXY, told, ref="update")]


def test_an_rm_that_has_another_connection_by_then_hears_it_there_too() -> None:
    bench = registered()
    asked = [*bench.update(TWO), *bench.hello(GPU)]
    bench.hear("rmproxy-2", Resume(), ref="again")
    assert news(bench.agree(asked)) == [("rmproxy-2", "", UPDATED), (PROXY, "update", UPDATED)]


def test_an_rm_that_is_refused_hears_why_and_goes_on() -> None:
    bench = registered()
    asked = bench.update(TWO)
    refusal = Refused(code="configuration", reason="update of configuration failed: partition rm-1_default: no")
    assert sent(PROXY, refusal, ref="update") in bench.vote(asked[0], "no")
    assert bench.broker.state.notes[-1] == ("configuration change of RM rm-1 refused: partition rm-1_default: no")
    [again] = said(bench.update("]"))
    assert isinstance(again, Refused)
    assert again.reason.startswith("update of configuration failed: ")


def test_an_rm_that_has_to_wait_is_told_by_a_code() -> None:
    bench = registered()
    bench.update(TWO)
    [refusal] = said(bench.update(ONE_QUEUE))
    assert isinstance(refusal, Refused)
    assert refusal.code == "busy"


def test_a_front_end_is_answered_and_the_rm_hears_who_changed_it() -> None:
    bench = registered()
    sends = bench.agree([*bench.change(TWO), *bench.hello(GPU)])
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
    assert bench.broker.state.notes[-1] == "configuration of RM rm-1 changed by alice (api)"


def test_a_front_end_that_is_refused_is_the_only_one_to_hear_of_it() -> None:
    bench = registered()
    [asked, _] = bench.change(TWO)
    sends = bench.vote(asked, "no room")
    assert answers(sends) == [(409, "partition rm-1_default: no room")]
    assert [one for one in sends if one.to == PROXY] == []
    assert bench.broker.state.notes[-1] == "configuration change of RM rm-1 refused: partition rm-1_default: no room"


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
    changes = [ChangeConfig(config="", author="a", origin=one) for one in origins]
    requests = [UpdateRequest(source="front-end", change=one, call=Header(kind="ChangeConfig")) for one in changes]
    assert [one.is_owner for one in requests] == [True, True, True, False, False]


def test_nothing_is_asked_of_a_worker_twice_for_a_refused_change() -> None:
    bench = registered()
    first = [one for one in bench.change(TWO) if is_prepare(one)]
    bench.vote(first[0], "no")
    assert bench.vote(first[0]) == []
