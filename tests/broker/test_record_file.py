import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from broker.record_file import FORMAT_VERSION, RecordFile
from broker.registry import RmRecord
from broker.state import RMS_MAX, VERSIONS_MAX, ConfigVersions
from common.config.model import compute_checksum
from common.control_messages import ConfigVersion, ManagerRecord, ProbeRecord, RebaseVersion, Recorded, WriteFile
from common.messages import Message
from common.names import RECORD
from common.query_messages import Answer, ReadConfig
from common.wire import Incoming, decode_body
from tests.full_disk import full_disk
from tests.machines import RM, header, sent


class Paper:
    """A record in a file, and how often it rang for its reader."""

    def __init__(self, path: Path) -> None:
        self.rings = 0
        self.record = RecordFile(path, wake=self.ring)

    def ring(self) -> None:
        self.rings += 1

    def told(self, message: Message, **fields: str | int) -> Incoming | None:
        self.record.send(sent(RECORD, message, **{"session": "", **fields}))
        return self.record.receive()

    def write(self, number: int, text: str, *, rm: str = RM) -> Recorded:
        """Another version, with facts that name it."""
        return self.keep(facts(rm, text), number, version(number, text))

    def keep(self, known: RmRecord | None, number: int, new: ConfigVersion | None = None, *, rm: str = RM) -> Recorded:
        rm = known.rm if known is not None else rm
        answer = self.told(ManagerRecord(number=number, facts=msgspec.json.encode(known), version=new), rm=rm)
        assert answer is not None
        assert (answer.source, answer.header) == (RECORD, header("Recorded", rm=rm, session=""))
        return decode_body(Recorded, answer.body)

    def read(self, number: int, *, rm: str = RM) -> Answer:
        answer = self.told(ReadConfig(what="version", version=number), rm=rm, ref="webservice 7")
        assert answer is not None
        assert answer.header == header("Answer", rm="", session="", ref="webservice 7")
        return decode_body(Answer, answer.body)


def facts(rm: str, text: str = "") -> RmRecord:
    return RmRecord(rm=rm, session="s", registered_ns=1, call="c", text=text)


def version(number: int, text: str, base: str = "base") -> ConfigVersion:
    return ConfigVersion(
        number=number,
        checksum=compute_checksum(text),
        at_ns=number,
        author="alice",
        origin="api",
        base=base,
        config=text,
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "record.db"


def test_nobody_else_may_read_it(path: Path) -> None:
    before = os.umask(0)
    try:
        paper = Paper(path)
        paper.write(1, "text")
        kept = {one.name: one.stat().st_mode & 0o777 for one in path.parent.iterdir()}
        paper.record.close()
    finally:
        os.umask(before)
    assert set(kept) > {path.name}
    assert set(kept.values()) == {0o600}


@pytest.fixture
def paper(path: Path) -> Iterator[Paper]:
    found = Paper(path)
    yield found
    found.record.close()


@contextmanager
def opened(path: Path) -> Iterator[Paper]:
    found = Paper(path)
    try:
        yield found
    finally:
        found.record.close()


def test_a_version_is_recorded_and_whoever_waits_is_woken(paper: Paper) -> None:
    assert paper.record.receive() is None
    assert paper.write(1, "text") == Recorded(number=1)
    assert paper.rings == 1


def test_what_was_recorded_is_there_when_the_file_is_opened_again(path: Path) -> None:
    text = "partitions: []\r\n# Grüße\t\x00'\";--\n"
    with opened(path) as paper:
        paper.write(1, "first")
        paper.write(2, text)
        paper.write(1, "of another", rm="rm-2")
        live = ConfigVersions(paper.record.read_histories())
    with opened(path) as paper:
        assert ConfigVersions(paper.record.read_histories()).history(RM) == live.history(RM)
        assert list(paper.record.read_histories()) == [RM, "rm-2"]
        assert paper.record.read_histories()[RM].entries[-1].config == text
        assert [one.number for one in paper.record.read_histories()[RM].entries] == [1, 2]
        assert paper.write(3, "third") == Recorded(number=3)


def test_a_version_is_there_even_if_the_process_never_gets_to_close_the_file(path: Path, paper: Paper) -> None:
    paper.write(1, "text")
    with opened(path) as another:
        assert another.record.read_histories()[RM].entries[-1].config == "text"


def test_a_version_that_was_not_carried_out_may_be_written_anew(paper: Paper) -> None:
    paper.write(1, "text")
    assert paper.write(1, "another") == Recorded(number=1)
    assert paper.record.read_histories()[RM].entries[-1].config == "another"


def test_no_more_is_kept_than_is_remembered(paper: Paper) -> None:
    for number in range(1, VERSIONS_MAX + 3):
        paper.write(number, str(number))
    assert [paper.read(number).status for number in (1, 2, 3, VERSIONS_MAX + 2)] == [404, 404, 200, 200]
    assert len(paper.record.read_histories()[RM].entries) == VERSIONS_MAX


def test_it_forgets_the_rm_that_was_first_known_as_memory_does(path: Path) -> None:
    with sqlite3.connect(path) as file:
        RecordFile(path, wake=lambda: None).close()
        rows = [(f"rm-{number}", 1, "", 0, "", "", "base", "text") for number in range(RMS_MAX)]
        file.executemany("INSERT INTO versions VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
    file.close()
    with opened(path) as paper:
        memory = ConfigVersions(paper.record.read_histories())
        assert paper.write(2, "later", rm="rm-5") == Recorded(number=2)
        assert len(paper.record.read_histories()) == RMS_MAX
        for rm, number in (("rm-0", 2), ("one-more", 1), ("and-another", 1)):
            assert paper.write(number, "later", rm=rm) == Recorded(number=number)
            memory.add_version(rm, version(number, "later"))
        known = paper.record.read_histories()
        for rm in ("rm-0", "rm-1", "rm-2", "one-more", "and-another"):
            assert (memory.history(rm).latest is None) == (rm not in known)
        assert len(known) == RMS_MAX


def test_a_new_base_is_recorded_for_the_latest_version(paper: Paper) -> None:
    paper.write(1, "first")
    paper.write(2, "second")
    assert recorded(paper, RebaseVersion(base="another")) == Recorded(number=0)
    assert [one.base for one in paper.record.read_histories()[RM].entries] == ["base", "another"]


def test_a_new_base_for_an_rm_that_is_not_known_is_nothing(paper: Paper) -> None:
    assert recorded(paper, RebaseVersion(base="another")) == Recorded(number=0)
    assert paper.record.read_histories() == {}


def test_an_earlier_version_can_be_read_as_it_was_written(paper: Paper) -> None:
    paper.write(1, "first\r\n")
    paper.write(2, "second")
    answer = paper.read(1)
    assert answer.status == 200
    assert msgspec.json.decode(answer.body) == {
        "rm": RM,
        "version": 1,
        "checksum": compute_checksum("first\r\n"),
        "at": 1,
        "author": "alice",
        "origin": "api",
        "config": "first\r\n",
    }


@pytest.mark.parametrize("number", [0, 2, -1, 2**63 - 1, 2**64 - 1])
def test_a_version_that_is_not_there_is_not_found(paper: Paper, number: int) -> None:
    paper.write(1, "first")
    text = f"RM rm-1 has no version {number} of its configuration, or no longer"
    assert paper.read(number) == Answer(status=404, body=text.encode())
    assert paper.read(1, rm="rm-2").status == 404


def test_what_is_no_question_to_a_record_is_a_defect(paper: Paper) -> None:
    with pytest.raises(TypeError, match="WriteFile"):
        paper.told(WriteFile(text="", replaces=""))


# What is known of each RM --------------------------------------------------------------------------------------------


def test_what_is_so_of_an_rm_is_there_when_the_file_is_opened_again_the_first_registered_first(path: Path) -> None:
    whole = RmRecord(
        rm=RM,
        session="s-1",
        registered_ns=20,
        call="ab12",
        text="partitions: []\r\n# Grüße",
        build_info={"v": "1"},
        extra={"a": "'"},
        capabilities=["predicates"],
        follows_core=True,
        passed_over="x",
        rollout=7,
        generations={"rm-1_gpu": 3},
        last_generation=4,
        leaving=["rm-1_old"],
        leases={"rm-1_gpu": 1_800_000_000 * 2**20},
    )
    earlier = facts("rm-2")
    with opened(path) as paper:
        assert paper.keep(facts(RM), 1) == Recorded(number=1)
        assert paper.keep(whole, 2) == Recorded(number=2)
        paper.keep(earlier, 3)
    with opened(path) as paper:
        assert paper.record.read_records() == [earlier, whole]
        paper.keep(None, 4, rm=RM)
        assert paper.record.read_records() == [earlier]


def test_a_decision_and_its_version_are_recorded_together_or_not_at_all(path: Path, paper: Paper) -> None:
    paper.write(1, "first")
    with full_disk(path.with_name(path.name + "-wal").stat().st_size):
        assert paper.write(2, "second" * 10_000).problem
    assert [one.text for one in paper.record.read_records()] == ["first"]
    assert paper.record.read_histories()[RM].entries[-1].config == "first"


def test_what_cannot_be_read_of_one_rm_is_left_out_and_the_others_are_known(path: Path, paper: Paper) -> None:
    paper.keep(facts("rm-2"), 1)
    with sqlite3.connect(path) as file:
        file.execute("INSERT INTO managers VALUES ('rm-1', '{\"rm\": 7}')")
    file.close()
    assert [one.rm for one in paper.record.read_records()] == ["rm-2"]


def test_a_file_of_the_first_format_is_taken_over_with_its_versions(path: Path) -> None:
    with sqlite3.connect(path) as file:
        file.execute(
            "CREATE TABLE versions (rm TEXT NOT NULL, number INTEGER NOT NULL, checksum TEXT NOT NULL, "
            "at_ns INTEGER NOT NULL, author TEXT NOT NULL, origin TEXT NOT NULL, base TEXT NOT NULL, "
            "config TEXT NOT NULL, PRIMARY KEY (rm, number)) STRICT"
        )
        file.execute("INSERT INTO versions VALUES ('rm-1', 1, 'c', 0, 'alice', 'api', 'b', 'text')")
        file.execute("PRAGMA user_version=1")
    file.close()
    with opened(path) as paper:
        assert paper.record.read_histories()[RM].entries[-1].config == "text"
        assert paper.record.read_records() == []
        assert paper.write(2, "another") == Recorded(number=2)


# Incarnations -------------------------------------------------------------------------------------------------------


def test_each_broker_has_an_incarnation_above_all_earlier_ones_even_if_the_clock_went_back(path: Path) -> None:
    found = []
    for unix_s in (1000, 1000, 500, 2000):
        with opened(path) as paper:
            found.append(paper.record.begin(unix_s))
    assert found == [1000, 1001, 1002, 2000]


def test_a_broker_begins_on_a_full_disk_too(path: Path, paper: Paper) -> None:
    assert paper.record.begin(1000) == 1000
    with full_disk(path.with_name(path.name + "-wal").stat().st_size):
        assert paper.record.begin(2000) == 2000
        with opened(path) as another:
            assert another.record.begin(3000) == 3000
            assert another.record.problem
    assert recorded(paper, ProbeRecord()) == Recorded(number=0)
    with opened(path) as later:
        assert later.record.begin(1) == 2001, "the probe has written what could not be written at the beginning"


def recorded(paper: Paper, message: Message) -> Recorded:
    answer = paper.told(message)
    assert answer is not None
    return decode_body(Recorded, answer.body)


# Files that cannot be used ------------------------------------------------------------------------------------------


def test_a_full_disk_refuses_the_version_and_the_next_one_is_taken_when_there_is_room(path: Path, paper: Paper) -> None:
    paper.write(1, "first")
    with full_disk(path.with_name(path.name + "-wal").stat().st_size):
        refusal = paper.write(2, "second" * 10_000)
        assert recorded(paper, RebaseVersion(base="another")).problem
        assert recorded(paper, ProbeRecord()).problem
    assert refusal.number == 2
    assert refusal.problem
    assert paper.record.read_histories()[RM].entries[-1].config == "first"
    assert recorded(paper, ProbeRecord()) == Recorded(number=0)
    assert paper.write(2, "another second") == Recorded(number=2)


def test_a_file_that_somebody_else_has_locked_refuses_the_version(path: Path, paper: Paper) -> None:
    paper.write(1, "first")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert paper.write(2, "second") == Recorded(number=2, problem="database is locked")
    other.close()
    assert paper.write(2, "second") == Recorded(number=2)


def test_a_version_that_was_refused_does_not_make_an_rm_known(paper: Paper, path: Path) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert paper.write(1, "first").problem
    other.close()
    assert paper.record.read_histories() == {}


def test_a_file_of_a_later_format_is_refused(path: Path) -> None:
    with sqlite3.connect(path) as file:
        file.execute(f"PRAGMA user_version={FORMAT_VERSION + 1}")
    file.close()
    with pytest.raises(
        OSError, match=f"it has format {FORMAT_VERSION + 1}, this release supports up to {FORMAT_VERSION}"
    ):
        Paper(path)


def test_a_file_that_is_no_record_is_refused_and_left_as_it_is(path: Path) -> None:
    path.write_text("partitions: []\n" * 100)
    with pytest.raises(OSError, match=r"record\.db: the record of RMs and .* cannot be used: .*; move it away"):
        Paper(path)
    assert path.read_text() == "partitions: []\n" * 100


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file or directory; move it away"):
        Paper(tmp_path / "missing" / "record.db")


def test_a_record_of_which_pages_are_damaged_is_refused(path: Path, paper: Paper) -> None:
    for number in range(1, 9):
        paper.write(number, "text" * 2_000)
    paper.record.close()
    content = path.read_bytes()
    path.write_bytes(content[:8_000] + bytes(len(content) - 8_000))
    with pytest.raises(OSError, match=r"the record of RMs and .* cannot be used: [^\n]*; move it away[^\n]*$"):
        Paper(path)


def test_facts_that_are_no_text_are_passed_over(path: Path, paper: Paper) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("INSERT INTO managers VALUES ('x', CAST(X'7B22726DFF' AS TEXT))")
    other.close()
    assert paper.record.read_records() == []


def test_names_that_are_no_text_are_a_record_that_cannot_be_used(path: Path, paper: Paper) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("INSERT INTO versions VALUES ('x', 1, CAST(X'FF' AS TEXT), 1, 'a', 'update', '', '')")
    other.close()
    with pytest.raises(OSError, match="the record of RMs and configurations cannot be used"):
        paper.record.read_histories()
