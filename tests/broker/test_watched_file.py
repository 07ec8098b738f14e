import asyncio
import logging
import os
from pathlib import Path

import pytest

from tests.machines import header, sent
from yunishard.broker import watched_file
from yunishard.broker.watched_file import TEXT_BYTES_MAX, WatchedFile
from yunishard.common.config.model import compute_checksum
from yunishard.common.messages.control_messages import ChangedFile, WriteFile
from yunishard.common.messages.wire import Incoming, decode_body
from yunishard.common.names import FILE
from yunishard.common.transport.event_loop import Transport

FIRST, SECOND = "first: text\n", "second: longer text\n"


def texts(*told: Incoming | None) -> list[str]:
    """What is told of the file."""
    found: list[str] = []
    for incoming in told:
        if incoming is not None:
            assert (incoming.source, incoming.header) == (FILE, header("ChangedFile", rm="", session=""))
            found.append(decode_body(ChangedFile, incoming.body).text)
    return found


class Desk:
    """A watched file."""

    def __init__(self, path: Path) -> None:
        path.write_text(FIRST)
        self.path = path
        self.file = WatchedFile(path, wake=lambda: None)

    def heard(self) -> list[str]:
        """What is told after as many looks as a change needs."""
        return texts(self.file.poll(), self.file.poll())

    def write(self, text: str) -> list[str]:
        return texts(self.file.write_back(WriteFile(text=text, replaces=compute_checksum(self.file.text))))


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "queues.yaml")


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]


# Noticing -----------------------------------------------------------------------------------------------------------


def test_it_has_the_text_to_begin_with_and_tells_nothing_while_that_stays(desk: Desk) -> None:
    assert desk.file.text == FIRST
    assert desk.heard() == []


def test_another_text_is_told_once(desk: Desk) -> None:
    desk.path.write_text(SECOND)
    assert desk.heard() == [SECOND]
    assert desk.heard() == []
    assert desk.file.text == SECOND


def test_a_file_that_somebody_is_still_writing_is_left_alone(desk: Desk) -> None:
    for half in ("", "sec", "second: lon"):
        desk.path.write_text(half)
        assert desk.file.poll() is None
    desk.path.write_text(SECOND)
    assert desk.heard() == [SECOND]


def test_an_editor_that_replaces_the_file_is_noticed_even_if_time_and_size_are_the_same(desk: Desk) -> None:
    before = desk.path.stat()
    other = desk.path.with_name("other")
    other.write_text(FIRST.upper())
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(desk.path)
    assert desk.heard() == [FIRST.upper()]


def test_the_same_text_written_again_is_no_change(desk: Desk) -> None:
    os.utime(desk.path, ns=(1, 1))
    assert desk.heard() == []
    other = desk.path.with_name("other")
    other.write_text(FIRST)
    other.replace(desk.path)
    assert desk.heard() == []


def test_a_link_that_points_elsewhere_is_noticed_as_mounted_files_change_like_that(tmp_path: Path) -> None:
    target, other = tmp_path / "2026-01", tmp_path / "2026-02"
    other.write_text(SECOND)
    target.write_text(FIRST)
    link = tmp_path / "queues.yaml"
    link.symlink_to(target)
    file = WatchedFile(link, wake=lambda: None)
    spare = tmp_path / "spare"
    spare.symlink_to(other)
    spare.replace(link)
    for _ in range(2):
        file.poll()
    assert file.text == SECOND


def test_line_ends_and_other_alphabets_stay_as_they_are(desk: Desk) -> None:
    desk.path.write_bytes("grün: ☃\r\n".encode())
    assert desk.heard() == ["grün: ☃\r\n"]


def test_a_file_that_is_gone_is_said_once_and_the_text_stays(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    away = desk.path.with_name("away")
    for _ in range(2):
        desk.path.rename(away)
        assert desk.heard() == []
        [warning] = warnings(caplog)
        assert warning.endswith(
            "queues.yaml cannot be read: No such file or directory; the configuration in force stays"
        )
        caplog.clear()
        away.rename(desk.path)
        assert desk.heard() == []
    assert desk.file.text == FIRST
    desk.path.unlink()
    desk.heard()
    desk.path.write_text(SECOND)
    assert desk.heard() == [SECOND]


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"\xff\xfe", "is not UTF-8"), (b" " * (TEXT_BYTES_MAX + 1), f"has more than {TEXT_BYTES_MAX} bytes")],
)
def test_what_is_no_text_for_us_is_said_once_and_ignored(
    desk: Desk, caplog: pytest.LogCaptureFixture, content: bytes, words: str
) -> None:
    desk.path.write_bytes(content)
    assert desk.heard() == desk.heard() == []
    [warning] = warnings(caplog)
    assert words in warning
    assert warning.endswith("the configuration in force stays")
    desk.path.write_text(SECOND)
    assert desk.heard() == [SECOND]


@pytest.mark.parametrize("content", [None, b"\xff", b" " * (TEXT_BYTES_MAX + 1)])
def test_a_file_that_cannot_be_used_to_begin_with_has_no_text_until_it_is_mended(
    tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "queues.yaml"
    if content is not None:
        path.write_bytes(content)
    file = WatchedFile(path, wake=lambda: None)
    assert file.text == ""
    assert file.poll() is None
    path.write_text(FIRST)
    assert texts(file.poll(), file.poll()) == [FIRST]
    assert file.text == FIRST


async def hear(wire: Transport) -> list[str]:
    """What is told next."""
    async with asyncio.timeout(10):
        while not (found := await wire.receive(1.0)):
            pass
    return texts(*found)


def test_it_looks_by_itself_and_writes_in_its_thread_until_it_is_closed(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one test here that waits, as long as a loop needs for a few callbacks."""
    monkeypatch.setattr(watched_file, "POLL_INTERVAL_S", 0.001)

    async def watched() -> None:
        wire = Transport()
        file = WatchedFile(desk.path, wake=lambda: wire.wake(FILE))
        wire.add(FILE, file)
        file.watch()
        desk.path.write_text(SECOND)
        assert await hear(wire) == [SECOND]
        wire.send(sent(FILE, WriteFile(text="third: text\n", replaces=compute_checksum(SECOND))))
        assert await hear(wire) == ["third: text\n"]
        file.close()
        assert desk.path.read_text() == "third: text\n"

    asyncio.run(watched())


# Writing ------------------------------------------------------------------------------------------------------------


def test_a_text_is_written_and_told_like_any_other_change(desk: Desk) -> None:
    assert desk.write("new: text\r\n") == ["new: text\r\n"]
    assert desk.path.read_bytes() == b"new: text\r\n"
    assert desk.heard() == []


def test_the_text_before_is_kept_beside_it_and_nothing_else_is_left(desk: Desk) -> None:
    desk.write(SECOND)
    previous = desk.path.with_name("queues.yaml.previous")
    assert previous.read_text() == FIRST
    desk.write("third: text\n")
    assert previous.read_text() == SECOND
    assert sorted(desk.path.parent.iterdir()) == [desk.path, previous]


def test_no_reader_sees_half_of_it_as_the_file_is_replaced(desk: Desk) -> None:
    with desk.path.open() as reader:
        desk.write(SECOND)
        assert reader.read() == FIRST
    assert desk.path.read_text() == SECOND


def test_what_somebody_has_written_meanwhile_is_not_overwritten(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    desk.path.write_text("third: text that nobody has noticed yet\n")
    assert desk.write(SECOND) == []
    assert warnings(caplog) == [f"{desk.path} has been edited since and is not overwritten: its present text counts"]
    assert desk.heard() == ["third: text that nobody has noticed yet\n"]


def test_a_link_that_waits_where_the_new_text_is_made_is_not_followed(desk: Desk, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / ".queues.yaml.new").symlink_to(victim)
    desk.write(SECOND)
    assert (victim.read_text(), desk.path.read_text()) == ("mine", SECOND)


def test_who_may_read_it_stays(desk: Desk) -> None:
    desk.path.chmod(0o640)
    desk.write(SECOND)
    assert desk.path.stat().st_mode & 0o777 == 0o640


def test_a_link_stays_one_and_what_it_points_to_is_written(tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    target = folder / "real.yaml"
    target.write_text(FIRST)
    link = tmp_path / "queues.yaml"
    link.symlink_to(target)
    file = WatchedFile(link, wake=lambda: None)
    file.write_back(WriteFile(text=SECOND, replaces=compute_checksum(FIRST)))
    assert link.is_symlink()
    assert target.read_text() == SECOND
    assert (tmp_path / "queues.yaml.previous").read_text() == FIRST
    assert list(folder.iterdir()) == [target]


def test_a_text_that_cannot_be_written_is_a_warning_and_the_file_stays(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    obstacle = desk.path.with_name("queues.yaml.previous")
    obstacle.mkdir()
    (obstacle / desk.path.name).mkdir()
    assert desk.write(SECOND) == []
    [warning] = warnings(caplog)
    assert "queues.yaml cannot be written: " in warning
    assert warning.endswith("the change is in force and recorded, but not in the file")
    assert desk.path.read_text() == FIRST
    assert sorted(desk.path.parent.iterdir()) == [desk.path, obstacle]


def test_a_previous_text_that_is_the_file_itself_stops_the_writing(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    desk.path.with_name("queues.yaml.previous").symlink_to(desk.path)
    assert desk.write(SECOND) == []
    assert "None" not in warnings(caplog)[0]
    assert desk.path.read_text() == FIRST


def test_a_file_that_is_gone_when_it_is_to_be_written_is_made_anew(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    desk.path.unlink()
    umask = os.umask(0o027)
    try:
        assert desk.write(SECOND) == [SECOND]
    finally:
        os.umask(umask)
    assert warnings(caplog) == []
    assert (desk.path.read_text(), desk.path.stat().st_mode & 0o777) == (SECOND, 0o640)
    assert list(desk.path.parent.iterdir()) == [desk.path]


def test_a_file_whose_directory_is_gone_too_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    desk = Desk(folder / "queues.yaml")
    desk.path.unlink()
    folder.rmdir()
    assert desk.write(SECOND) == []
    [warning] = warnings(caplog)
    assert "queues.yaml cannot be written: No such file or directory" in warning
