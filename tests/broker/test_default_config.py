import json

import pytest

from broker.config_updates import RETIRE_MAX_S
from broker.config_validation import analyses
from common.config.model import compute_checksum
from common.control_messages import RebaseVersion, WriteFile
from common.names import FILE
from common.settings import Settings
from common.wire import NEVER, decode_body
from tests.broker.house import GPU, PROXY, House, answers, is_prepare, kinds, news
from tests.broker.test_config_validation import count_analyses
from tests.machines import ONE_QUEUE, PARTITION, RM, sent, two_partitions

MORE = ONE_QUEUE.replace("{name: batch}", "{name: batch}, {name: more}")
OTHER = ONE_QUEUE.replace("{name: batch}", "{name: other}")
TWO = two_partitions()
THEIRS = "rm-2_default"
FILE_PATH = "/etc/queues.yaml"
BAD_NAME = ONE_QUEUE.replace("default", "a b")
WRITE = sent(FILE, WriteFile(text=MORE, replaces=compute_checksum(ONE_QUEUE)), rm="", session="")


def following(*rms: str, text: str = ONE_QUEUE) -> House:
    """RMs that have their configuration from the file."""
    house = House(default_config=text, watched=FILE_PATH)
    for rm in rms or (RM,):
        house.register("", rm=rm)
    house.switch.state.notes.clear()
    return house


# The file changes ---------------------------------------------------------------------------------------------------


def test_another_text_is_offered_to_every_rm_that_sent_none_in_a_roll_out_of_its_own() -> None:
    house = following(RM, "rm-2")
    house.register(rm="rm-3")
    first, second = house.edit(MORE)
    assert [first.to, second.to] == [PARTITION, THEIRS]
    sends = [*house.vote(first), *house.vote(second, "no")]
    assert [(to, ref, told.author) for to, ref, told in news(sends)] == [(PROXY, "", "the file")]
    assert [house.text(rm) for rm in (RM, "rm-2", "rm-3")] == [MORE, ONE_QUEUE, ONE_QUEUE]
    assert (house.record[-1].origin, house.record[-1].author, house.record[-1].base) == (
        "file",
        "the file",
        compute_checksum(MORE),
    )
    [warning] = house.switch.state.warnings
    assert house.switch.state.notes[1:] == ["configuration of RM rm-1 changed by the file /etc/queues.yaml"]
    assert warning == (
        "RM rm-2 keeps its configuration, /etc/queues.yaml was refused: partition rm-2_default: no; "
        "correct the file, or send it once more with `yunishard config put`"
    )


def test_a_text_is_read_once_for_all_as_that_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    house = following(RM, "rm-2", "rm-3")
    analysed = count_analyses(monkeypatch)
    assert len(house.edit(MORE.replace("more", "read-once"))) == 3
    assert len(analysed) == 1


def test_a_text_that_was_refused_is_offered_once_and_the_next_one_again() -> None:
    house = following()
    [asked] = house.edit(MORE)
    assert [one for one in house.vote(asked, "no") if is_prepare(one)] == []
    assert house.edit(MORE) == []
    assert house.switch.tick(5.0) == []
    assert [one.to for one in house.edit(OTHER)] == [PARTITION]


@pytest.mark.parametrize("edit", ["no: configuration", ""])
@pytest.mark.parametrize("origin", ["api", "rollback to 1"])
def test_a_change_does_not_overwrite_an_edit_of_the_file_that_is_not_in_force(edit: str, origin: str) -> None:
    house = following()
    assert house.edit(edit) == []
    [(status, text)] = answers(house.change(MORE, origin=origin))
    assert status == 409
    assert f"the watched file {FILE_PATH} has been edited, and RM rm-1 does not run that text" in text
    assert "--force" in text
    assert house.text() == ONE_QUEUE
    write = WriteFile(text=MORE, replaces=compute_checksum(edit))
    assert sent(FILE, write, rm="", session="") in house.agree(house.change(MORE, overwrite=True))


def test_a_change_does_not_overwrite_an_edit_that_a_worker_refused_but_may_send_it_once_more() -> None:
    house = following()
    [asked] = house.edit(MORE)
    house.vote(asked, "no")
    assert answers(house.change(OTHER))[0][0] == 409
    house.agree(house.change(MORE))
    assert house.text() == MORE


def test_an_edit_that_was_taken_back_is_in_nobodys_way() -> None:
    house = following()
    house.edit("no: configuration")
    house.edit(ONE_QUEUE)
    assert WRITE in house.agree(house.change(MORE))


def test_a_file_that_could_not_be_written_is_no_edit() -> None:
    house = following()
    house.agree(house.change(MORE))  # the shell could not write it: it still has the text before
    house.agree(house.change(OTHER))
    assert house.text() == OTHER


def test_the_answer_to_a_change_has_the_warnings_of_its_text() -> None:
    house = following()
    text = ONE_QUEUE.replace("{name: batch}", "{name: batch, properties: {application.sort.polic: fifo}}")
    sends = house.agree(house.change(text))
    document = json.loads(answers(sends)[0][1])
    assert [one["message"] for one in document["warnings"]] == [str(one.message) for one in analyses.get(text).warnings]
    assert document["warnings"]


def test_what_it_says_since_a_change_is_under_way_does_not() -> None:
    house = following()
    asked = house.change(MORE)
    house.edit(OTHER)
    sends = house.vote(asked[0])
    assert WRITE in sends, "which the file refuses, as it says something else"
    house.agree(sends)
    assert house.text() == OTHER


def test_an_rm_that_registers_later_has_the_text_that_the_file_has_then() -> None:
    house = following()
    house.edit(MORE)
    house.register("", rm="rm-2")
    assert house.text("rm-2") == MORE
    assert house.edit(MORE) == []


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
    house = following()
    assert house.edit(text) == []
    [warning] = house.switch.state.warnings
    assert warning.startswith(words)
    house.register("", rm="rm-2")
    assert [house.text(rm) for rm in (RM, "rm-2")] == [ONE_QUEUE, ONE_QUEUE]


def test_an_rm_whose_configuration_is_just_being_changed_is_offered_it_afterwards() -> None:
    house = following()
    [asked] = house.change(OTHER)
    assert house.edit(MORE) == []
    sends = house.vote(asked)
    assert answers(sends)[0][0] == 200
    [offered] = [one for one in sends if is_prepare(one)]
    house.vote(offered)
    assert house.text() == MORE


def test_an_rm_that_is_just_registering_is_offered_it_afterwards() -> None:
    house = following()
    [asked] = [one for one in house.call("", session="session-2") if is_prepare(one)]
    assert house.edit(MORE) == []
    [offered] = [one for one in house.vote(asked) if is_prepare(one)]
    assert offered.header.session == "session-2"


@pytest.mark.parametrize("acknowledged", [True, False])
def test_an_rm_with_a_partition_that_is_being_taken_down_is_offered_it_afterwards(acknowledged: bool) -> None:
    house = following(text=TWO)
    house.agree(house.edit(ONE_QUEUE))
    assert house.edit(TWO) == []
    sends = house.retired(GPU) if acknowledged else house.wait(1.0 + RETIRE_MAX_S)
    assert [one.to for one in sends if is_prepare(one)] == [PARTITION]
    assert house.switch.registry.slots.keys() == {PARTITION, GPU}


def test_a_file_that_goes_back_and_forth_is_followed_each_time() -> None:
    house = following()
    for text in (MORE, ONE_QUEUE, MORE, ONE_QUEUE):
        house.agree(house.edit(text))
        assert house.text() == text


def test_without_a_file_nobody_follows_anything() -> None:
    house = House(default_config=ONE_QUEUE)
    house.register("")
    assert house.edit(MORE) == []
    assert house.text() == ONE_QUEUE
    assert WRITE.to not in {one.to for one in house.agree(house.change(MORE))}


def test_only_the_file_itself_says_what_it_has() -> None:
    house = following()
    [answer] = house.hear("webservice", WriteFile(text=MORE, replaces=""))
    assert answer.header.kind == "Refused"


# Somebody else changes it -------------------------------------------------------------------------------------------


def test_a_change_over_rest_is_written_to_the_file_which_thereby_is_its_own_base_and_others_follow() -> None:
    house = following(RM, "rm-2")
    sends = house.agree(house.change(MORE))
    assert WRITE in sends
    assert house.record[-1].base == compute_checksum(ONE_QUEUE)
    rebase, offered = house.edit(MORE)
    assert (rebase.header.rm, decode_body(RebaseVersion, rebase.body)) == (
        RM,
        RebaseVersion(base=compute_checksum(MORE)),
    )
    assert offered.to == THEIRS
    assert WRITE not in house.vote(offered)
    assert house.text("rm-2") == MORE
    house.register("", session="session-2")
    assert house.text() == MORE


def test_who_changes_it_hears_that_it_is_written_to_the_file_and_who_follows() -> None:
    house = following("rm-3", RM, "rm-2")
    house.register(rm="rm-4")
    told = [json.loads(body) for _, body in answers(house.agree(house.change(MORE)))]
    assert [(one["file"], one["followers"]) for one in told] == [(True, ["rm-2", "rm-3"])]
    [(_, again)] = answers(house.change(MORE))
    assert (json.loads(again)["file"], json.loads(again)["followers"]) == (False, [])
    [(_, other)] = answers(house.agree(house.change(OTHER, rm="rm-4")))
    assert (json.loads(other)["file"], json.loads(other)["followers"]) == (False, [])


def test_a_change_that_was_refused_is_not_written() -> None:
    house = following()
    [asked] = house.change(MORE)
    assert WRITE not in house.vote(asked, "no")


def test_a_change_that_could_not_be_written_holds_until_the_file_changes() -> None:
    house = following()
    house.agree(house.change(MORE))
    assert house.edit(ONE_QUEUE) == []
    house.register("", session="session-2")
    assert house.text() == MORE
    house.agree(house.edit(OTHER))
    assert house.text() == OTHER


def test_it_also_holds_when_the_core_is_started_anew() -> None:
    before = following()
    before.agree(before.change(MORE))
    house = House(default_config=ONE_QUEUE, watched=FILE_PATH, versions=before.switch.state.versions)
    assert [one for one in house.register("") if is_prepare(one)] == []
    assert house.text() == MORE


def test_a_change_of_an_rm_with_a_configuration_of_its_own_is_not_written() -> None:
    house = following()
    house.register(OTHER, rm="rm-2", session="another")
    assert (FILE, "WriteFile") not in kinds(house.agree(house.change(MORE, rm="rm-2")))


# The RM decides otherwise -------------------------------------------------------------------------------------------


def test_an_rm_that_updates_to_a_text_of_its_own_follows_the_file_no_more() -> None:
    house = following()
    assert WRITE not in house.agree(house.update(MORE))
    assert house.edit(OTHER) == []
    assert (FILE, "WriteFile") not in kinds(house.agree(house.change(ONE_QUEUE)))


def test_one_that_was_refused_goes_on_following() -> None:
    house = following()
    [asked] = house.update(MORE)
    house.vote(asked, "no")
    assert [one.to for one in house.edit(OTHER)] == [PARTITION]


@pytest.mark.parametrize("its_own", [OTHER, ONE_QUEUE])
def test_an_rm_that_updates_to_no_text_follows_the_file_from_then_on(its_own: str) -> None:
    house = House(default_config=ONE_QUEUE, watched=FILE_PATH)
    house.register(its_own)
    house.agree(house.update(""))
    assert house.text() == ONE_QUEUE
    assert [one.to for one in house.edit(MORE)] == [PARTITION]


# The file is wrong when an RM registers -----------------------------------------------------------------------------


def started_anew(before: House, text: str, *, watched: str = FILE_PATH) -> House:
    """The core, after a crash, with what the file says now."""
    return House(default_config=text, watched=watched, versions=before.switch.state.versions)


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
    house = started_anew(before, text)
    assert house.register("")[-1].header.kind == "Registered"
    assert (house.text(), house.record) == (MORE, [])
    [warning] = house.switch.state.warnings
    assert warning.startswith(
        "RM rm-1 begins with version 2 of its configuration, the latest one, as the file of queues /etc/queues.yaml is "
        f"refused: {problem}"
    )
    house.agree(house.edit(MORE))
    assert (house.text(), house.record) == (MORE, [])
    house.agree(house.edit(OTHER))
    assert house.text() == OTHER


def test_what_was_changed_on_top_of_the_file_counts_then_too_and_the_next_change_is_written_to_it() -> None:
    before = following()
    before.agree(before.change(MORE))
    house = started_anew(before, "")
    house.register("")
    assert house.text() == MORE
    write = WriteFile(text=OTHER, replaces=compute_checksum(""))
    assert sent(FILE, write, rm="", session="") in house.agree(house.change(OTHER))


def test_a_partition_name_that_cannot_be_is_passed_over_once_and_told_when_the_file_says_it_again() -> None:
    house = following()
    assert house.edit(BAD_NAME) == []
    house.switch.state.warnings.clear()
    house.register("", session="session-2")
    assert house.text() == ONE_QUEUE
    [warning] = house.switch.state.warnings
    assert warning.startswith("RM rm-1 begins with version 1")
    house.agree(house.edit(MORE))
    house.agree(house.edit(BAD_NAME))
    assert house.text() == MORE
    [_, warning] = house.switch.state.warnings
    assert warning.startswith("RM rm-1 keeps its configuration, /etc/queues.yaml was refused: line ")


def test_an_rm_that_updated_to_the_file_s_text_has_had_it_from_there() -> None:
    before = House(default_config=ONE_QUEUE, watched=FILE_PATH)
    before.register(OTHER)
    before.agree(before.update(""))
    assert [one.origin for one in before.record] == ["registration", "file"]
    house = started_anew(before, "]")
    house.register("")
    assert house.text() == ONE_QUEUE


@pytest.mark.parametrize("watched", [FILE_PATH, ""])
def test_one_that_had_another_text_of_its_own_or_none_is_refused(watched: str) -> None:
    before = House(default_config=ONE_QUEUE, watched=watched)
    before.register(OTHER)
    house = started_anew(before, "]", watched=watched)
    for rm in (RM, "rm-2"):
        [answer] = house.call("", rm=rm)
        assert answer.header.kind == "Refused"
        assert b"this is not YAML" in answer.body


def test_one_whose_latest_version_cannot_be_any_more_is_refused_for_what_the_file_says() -> None:
    before = following(text=two_partitions("b_c", "y"))
    small = Settings(lease_timeout_s=NEVER, partitions_max=1)
    house = House("]", watched=FILE_PATH, versions=before.switch.state.versions, settings=small)
    [answer] = house.call("")
    assert b"this is not YAML" in answer.body
