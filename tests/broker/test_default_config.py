import json

import pytest

from tests.broker.bench import GPU, PROXY, WEB, BrokerBench, answers, is_prepare, kinds, news
from tests.machines import ONE_QUEUE, PARTITION, RM, sent, two_partitions
from yunishard.broker.config_analysis import analyze
from yunishard.broker.config_updates import RETIRE_MAX_S
from yunishard.common.config.model import compute_checksum
from yunishard.common.messages.control_messages import RebaseVersion, WriteFile
from yunishard.common.messages.query_messages import ConfigRefusals, ListPartitions, PartitionList
from yunishard.common.messages.rm_messages import Leave
from yunishard.common.messages.wire import NEVER, decode_body
from yunishard.common.names import FILE
from yunishard.common.settings import Settings

MORE = ONE_QUEUE.replace("{name: batch}", "{name: batch}, {name: more}")
OTHER = ONE_QUEUE.replace("{name: batch}", "{name: other}")
TWO = two_partitions()
THEIRS = "rm-2_default"
FILE_PATH = "/etc/queues.yaml"
BAD_NAME = ONE_QUEUE.replace("default", "a b")
WRITE = sent(FILE, WriteFile(text=MORE, replaces=compute_checksum(ONE_QUEUE)), rm="", session="")


def following(*rms: str, text: str = ONE_QUEUE) -> BrokerBench:
    """RMs that have their configuration from the file."""
    bench = BrokerBench(default_config=text, watched=FILE_PATH)
    for rm in rms or (RM,):
        bench.register("", rm=rm)
    bench.broker.state.notes.clear()
    return bench


# The file changes ---------------------------------------------------------------------------------------------------


def test_another_text_is_offered_to_every_rm_that_sent_none_in_a_roll_out_of_its_own() -> None:
    bench = following(RM, "rm-2")
    bench.register(rm="rm-3")
    first, second = bench.edit(MORE)
    assert [first.to, second.to] == [PARTITION, THEIRS]
    sends = [*bench.vote(first), *bench.vote(second, "no")]
    assert [(to, ref, told.author) for to, ref, told in news(sends)] == [(PROXY, "", "the file")]
    assert [bench.text(rm) for rm in (RM, "rm-2", "rm-3")] == [MORE, ONE_QUEUE, ONE_QUEUE]
    assert (bench.record[-1].origin, bench.record[-1].author, bench.record[-1].base) == (
        "file",
        "the file",
        compute_checksum(MORE),
    )
    [warning] = bench.broker.state.warnings
    assert bench.broker.state.notes[1:] == ["configuration of RM rm-1 changed by the file /etc/queues.yaml"]
    assert warning == (
        "RM rm-2 keeps its configuration, /etc/queues.yaml was refused: partition rm-2_default: no; "
        "correct the file, or send it once more with `yunishard config put`"
    )


def test_a_text_is_read_once_for_all_as_that_takes_long() -> None:
    bench, text = following(RM, "rm-2", "rm-3"), MORE.replace("more", "read-once")
    assert len(bench.edit(text)) == 3
    assert bench.analysed.count(text) == 1


def test_a_text_that_was_refused_is_offered_once_and_the_next_one_again() -> None:
    bench = following()
    [asked] = bench.edit(MORE)
    assert [one for one in bench.vote(asked, "no") if is_prepare(one)] == []
    assert bench.edit(MORE) == []
    assert bench.broker.tick(5.0) == []
    assert [one.to for one in bench.edit(OTHER)] == [PARTITION]


@pytest.mark.parametrize("edit", ["no: configuration", ""])
@pytest.mark.parametrize("origin", ["api", "rollback to 1"])
def test_a_change_does_not_overwrite_an_edit_of_the_file_that_is_not_in_force(edit: str, origin: str) -> None:
    bench = following()
    assert bench.edit(edit) == []
    [(status, text)] = answers(bench.change(MORE, origin=origin))
    assert status == 409
    assert f"the watched file {FILE_PATH} has been edited, and RM rm-1 does not run that text" in text
    assert "--force" in text
    assert bench.text() == ONE_QUEUE
    write = WriteFile(text=MORE, replaces=compute_checksum(edit))
    assert sent(FILE, write, rm="", session="") in bench.agree(bench.change(MORE, overwrite=True))


def test_a_change_does_not_overwrite_an_edit_that_a_worker_refused_but_may_send_it_once_more() -> None:
    bench = following()
    [asked] = bench.edit(MORE)
    bench.vote(asked, "no")
    assert answers(bench.change(OTHER))[0][0] == 409
    bench.agree(bench.change(MORE))
    assert bench.text() == MORE


def test_an_edit_that_was_taken_back_is_in_nobodys_way() -> None:
    bench = following()
    bench.edit("no: configuration")
    bench.edit(ONE_QUEUE)
    assert WRITE in bench.agree(bench.change(MORE))


def test_a_file_that_could_not_be_written_is_no_edit() -> None:
    bench = following()
    bench.agree(bench.change(MORE))  # the shell could not write it: it still has the text before
    bench.agree(bench.change(OTHER))
    assert bench.text() == OTHER


def test_the_answer_to_a_change_has_the_warnings_of_its_text() -> None:
    bench = following()
    text = ONE_QUEUE.replace("{name: batch}", "{name: batch, properties: {application.sort.polic: fifo}}")
    sends = bench.agree(bench.change(text))
    document = json.loads(answers(sends)[0][1])
    assert [one["message"] for one in document["warnings"]] == [str(one.message) for one in analyze(text).warnings]
    assert document["warnings"]


def test_what_it_says_since_a_change_is_under_way_does_not() -> None:
    bench = following()
    asked = bench.change(MORE)
    bench.edit(OTHER)
    sends = bench.vote(asked[0])
    assert WRITE in sends, "which the file refuses, as it says something else"
    bench.agree(sends)
    assert bench.text() == OTHER


def test_an_rm_that_registers_later_has_the_text_that_the_file_has_then() -> None:
    bench = following()
    bench.edit(MORE)
    bench.register("", rm="rm-2")
    assert bench.text("rm-2") == MORE
    assert bench.edit(MORE) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the file of queues /etc/queues.yaml is empty: the configuration in force stays"),
        (
            "partitions: [{name: default}]",
            f"the file of queues {FILE_PATH} is refused, the configuration in force stays: ",
        ),
        ("]", f"the file of queues {FILE_PATH} is refused, the configuration in force stays: line 1: "),
    ],
)
def test_what_is_no_configuration_is_a_warning_and_ignored(text: str, words: str) -> None:
    bench = following()
    assert bench.edit(text) == []
    [warning] = bench.broker.state.warnings
    assert warning.startswith(words)
    bench.register("", rm="rm-2")
    assert [bench.text(rm) for rm in (RM, "rm-2")] == [ONE_QUEUE, ONE_QUEUE]


def test_an_rm_whose_configuration_is_just_being_changed_is_offered_it_afterwards() -> None:
    bench = following()
    [asked] = bench.change(OTHER)
    assert bench.edit(MORE) == []
    sends = bench.vote(asked)
    assert answers(sends)[0][0] == 200
    [offered] = [one for one in sends if is_prepare(one)]
    bench.vote(offered)
    assert bench.text() == MORE


def test_an_rm_that_is_just_registering_is_offered_it_afterwards() -> None:
    bench = following()
    [asked] = [one for one in bench.call("", session="session-2") if is_prepare(one)]
    assert bench.edit(MORE) == []
    [offered] = [one for one in bench.vote(asked) if is_prepare(one)]
    assert offered.header.session == "session-2"


@pytest.mark.parametrize("acknowledged", [True, False])
def test_an_rm_with_a_partition_that_is_being_taken_down_is_offered_it_afterwards(acknowledged: bool) -> None:
    bench = following(text=TWO)
    bench.agree(bench.edit(ONE_QUEUE))
    assert bench.edit(TWO) == []
    sends = bench.retired(GPU) if acknowledged else bench.wait(1.0 + RETIRE_MAX_S)
    assert [one.to for one in sends if is_prepare(one)] == [PARTITION]
    assert bench.broker.registry.slots.keys() == {PARTITION, GPU}


def test_a_file_that_goes_back_and_forth_is_followed_each_time() -> None:
    bench = following()
    for text in (MORE, ONE_QUEUE, MORE, ONE_QUEUE):
        bench.agree(bench.edit(text))
        assert bench.text() == text


def test_without_a_file_nobody_follows_anything() -> None:
    bench = BrokerBench(default_config=ONE_QUEUE)
    bench.register("")
    assert bench.edit(MORE) == []
    assert bench.text() == ONE_QUEUE
    assert WRITE.to not in {one.to for one in bench.agree(bench.change(MORE))}


def test_only_the_file_itself_says_what_it_has() -> None:
    bench = following()
    [answer] = bench.hear("webservice", WriteFile(text=MORE, replaces=""))
    assert answer.header.kind == "Refused"


# Somebody else changes it -------------------------------------------------------------------------------------------


def test_a_change_over_rest_is_written_to_the_file_which_thereby_is_its_own_base_and_others_follow() -> None:
    bench = following(RM, "rm-2")
    sends = bench.agree(bench.change(MORE))
    assert WRITE in sends
    assert bench.record[-1].base == compute_checksum(ONE_QUEUE)
    rebase, offered = bench.edit(MORE)
    assert (rebase.header.rm, decode_body(RebaseVersion, rebase.body)) == (
        RM,
        RebaseVersion(base=compute_checksum(MORE)),
    )
    assert offered.to == THEIRS
    assert WRITE not in bench.vote(offered)
    assert bench.text("rm-2") == MORE
    bench.register("", session="session-2")
    assert bench.text() == MORE


def test_who_changes_it_hears_that_it_is_written_to_the_file_and_who_follows() -> None:
    bench = following("rm-3", RM, "rm-2")
    bench.register(rm="rm-4")
    told = [json.loads(body) for _, body in answers(bench.agree(bench.change(MORE)))]
    assert [(one["file"], one["followers"]) for one in told] == [(True, ["rm-2", "rm-3"])]
    [(_, again)] = answers(bench.change(MORE))
    assert (json.loads(again)["file"], json.loads(again)["followers"]) == (False, [])
    [(_, other)] = answers(bench.agree(bench.change(OTHER, rm="rm-4")))
    assert (json.loads(other)["file"], json.loads(other)["followers"]) == (False, [])


def test_a_change_that_was_refused_is_not_written() -> None:
    bench = following()
    [asked] = bench.change(MORE)
    assert WRITE not in bench.vote(asked, "no")


def test_a_change_that_could_not_be_written_holds_until_the_file_changes() -> None:
    bench = following()
    bench.agree(bench.change(MORE))
    assert bench.edit(ONE_QUEUE) == []
    bench.register("", session="session-2")
    assert bench.text() == MORE
    bench.agree(bench.edit(OTHER))
    assert bench.text() == OTHER


def test_it_also_holds_when_the_core_is_started_anew() -> None:
    before = following()
    before.agree(before.change(MORE))
    bench = BrokerBench(
        default_config=ONE_QUEUE, watched=FILE_PATH, versions=before.broker.state.versions, texts=before.texts
    )
    assert [one for one in bench.register("") if is_prepare(one)] == []
    assert bench.text() == MORE


def test_a_change_of_an_rm_with_a_configuration_of_its_own_is_not_written() -> None:
    bench = following()
    bench.register(OTHER, rm="rm-2", session="another")
    assert (FILE, "WriteFile") not in kinds(bench.agree(bench.change(MORE, rm="rm-2")))


# The RM decides otherwise -------------------------------------------------------------------------------------------


def test_an_rm_that_updates_to_a_text_of_its_own_follows_the_file_no_more() -> None:
    bench = following()
    assert WRITE not in bench.agree(bench.update(MORE))
    assert bench.edit(OTHER) == []
    assert (FILE, "WriteFile") not in kinds(bench.agree(bench.change(ONE_QUEUE)))


def test_one_that_was_refused_goes_on_following() -> None:
    bench = following()
    [asked] = bench.update(MORE)
    bench.vote(asked, "no")
    assert [one.to for one in bench.edit(OTHER)] == [PARTITION]


@pytest.mark.parametrize("its_own", [OTHER, ONE_QUEUE])
def test_an_rm_that_updates_to_no_text_follows_the_file_from_then_on(its_own: str) -> None:
    bench = BrokerBench(default_config=ONE_QUEUE, watched=FILE_PATH)
    bench.register(its_own)
    bench.agree(bench.update(""))
    assert bench.text() == ONE_QUEUE
    assert [one.to for one in bench.edit(MORE)] == [PARTITION]


# The file is wrong when an RM registers -----------------------------------------------------------------------------


def started_anew(before: BrokerBench, text: str, *, watched: str = FILE_PATH) -> BrokerBench:
    """The core, after a crash, with what the file says now."""
    return BrokerBench(default_config=text, watched=watched, versions=before.broker.state.versions, texts=before.texts)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("]", "line 1: this is not YAML"),
        ("partitions: [{name: default}]", "line 1, partitions[0]: queue config is not set"),
        (BAD_NAME, "line 3, partitions[0].name: partition name 'a b' must be"),
        ("", "it is empty"),
        (" \n", "it is empty"),
    ],
)
def test_an_rm_that_had_its_configuration_from_a_file_that_is_wrong_now_begins_with_the_latest(
    text: str, problem: str
) -> None:
    before = following()
    before.agree(before.edit(MORE))
    bench = started_anew(before, text)
    assert bench.register("")[-1].header.kind == "Registered"
    assert (bench.text(), bench.record) == (MORE, [])
    [warning] = bench.broker.state.warnings
    assert warning.startswith(
        "RM rm-1 begins with version 2 of its configuration, the latest one, as the file of queues /etc/queues.yaml is "
        f"refused: {problem}"
    )
    bench.agree(bench.edit(MORE))
    assert (bench.text(), bench.record) == (MORE, [])
    bench.agree(bench.edit(OTHER))
    assert bench.text() == OTHER


def test_what_was_changed_on_top_of_the_file_counts_then_too_and_the_next_change_is_written_to_it() -> None:
    before = following()
    before.agree(before.change(MORE))
    bench = started_anew(before, "")
    bench.register("")
    assert bench.text() == MORE
    write = WriteFile(text=OTHER, replaces=compute_checksum(""))
    assert sent(FILE, write, rm="", session="") in bench.agree(bench.change(OTHER))


def test_a_partition_name_that_cannot_be_is_passed_over_once_and_told_when_the_file_says_it_again() -> None:
    bench = following()
    assert bench.edit(BAD_NAME) == []
    bench.broker.state.warnings.clear()
    bench.register("", session="session-2")
    assert bench.text() == ONE_QUEUE
    [warning] = bench.broker.state.warnings
    assert warning.startswith("RM rm-1 begins with version 1")
    bench.agree(bench.edit(MORE))
    bench.agree(bench.edit(BAD_NAME))
    assert bench.text() == MORE
    [_, warning] = bench.broker.state.warnings
    assert warning.startswith("RM rm-1 keeps its configuration, /etc/queues.yaml was refused: line ")


def test_an_rm_that_updated_to_the_file_s_text_has_had_it_from_there() -> None:
    before = BrokerBench(default_config=ONE_QUEUE, watched=FILE_PATH)
    before.register(OTHER)
    before.agree(before.update(""))
    assert [one.origin for one in before.record] == ["registration", "file"]
    bench = started_anew(before, "]")
    bench.register("")
    assert bench.text() == ONE_QUEUE


@pytest.mark.parametrize("watched", [FILE_PATH, ""])
def test_one_that_had_another_text_of_its_own_or_none_is_refused(watched: str) -> None:
    before = BrokerBench(default_config=ONE_QUEUE, watched=watched)
    before.register(OTHER)
    bench = started_anew(before, "]", watched=watched)
    for rm in (RM, "rm-2"):
        [answer] = bench.call("", rm=rm)
        assert answer.header.kind == "Refused"
        assert b"this is not YAML" in answer.body


def test_one_whose_latest_version_cannot_be_any_more_is_refused_for_what_the_file_says() -> None:
    before = following(text=two_partitions("b_c", "y"))
    small = Settings(lease_timeout_s=NEVER, partitions_max=1)
    bench = BrokerBench(
        "]", watched=FILE_PATH, versions=before.broker.state.versions, settings=small, texts=before.texts
    )
    [answer] = bench.call("")
    assert b"this is not YAML" in answer.body


# What the health check gets to know of it ----------------------------------------------------------------------------


def refusals(bench: BrokerBench) -> ConfigRefusals:
    [answer] = bench.hear(WEB, ListPartitions(), rm="", session="")
    return decode_body(PartitionList, answer.body).refusals


def test_an_invalid_edit_is_reported_until_the_file_is_valid_again() -> None:
    bench = following()
    assert refusals(bench) == ConfigRefusals()
    bench.edit("no: configuration")
    assert refusals(bench).file.startswith(f"{FILE_PATH}: ")
    bench.edit("")
    assert refusals(bench).file == f"{FILE_PATH} is empty"
    bench.edit(ONE_QUEUE)
    assert refusals(bench) == ConfigRefusals()


def test_an_rm_that_keeps_its_configuration_is_reported_until_it_has_another_one_or_leaves() -> None:
    bench = following(RM, "rm-2")
    first, second = bench.edit(MORE)
    bench.vote(first, "no")
    bench.vote(second, "never")
    assert refusals(bench).keeping == {RM: "partition rm-1_default: no", "rm-2": "partition rm-2_default: never"}
    [asked] = bench.change(OTHER, overwrite=True)
    bench.vote(asked)
    assert refusals(bench).keeping == {"rm-2": "partition rm-2_default: never"}
    bench.hear(PROXY, Leave(), rm="rm-2", session=bench.broker.registry.sessions["rm-2"].session)
    assert refusals(bench).keeping == {}


def test_the_latest_refused_change_is_reported_with_its_reason_and_time() -> None:
    bench = BrokerBench()
    bench.register()
    bench.broker.tick(50.0)
    [asked] = bench.change(MORE)
    bench.vote(asked, "root.batch is in use")
    latest = refusals(bench).latest
    assert latest is not None
    assert (latest.rm_id, latest.origin, latest.reason) == (RM, "api", "partition rm-1_default: root.batch is in use")
    assert latest.at_ns > 0
    bench.change("no: configuration")
    assert refusals(bench).latest != latest
