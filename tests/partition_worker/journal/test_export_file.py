"""An export is read as the journal that it was made of."""

import gzip
import json
from contextlib import closing
from pathlib import Path

import pytest

from tests.machines import PARTITION
from tests.partition_worker.journal.hand import files_in, reader
from tests.partition_worker.journal.session import preempting
from tests.recorded import content
from yunishard.cli.main import main
from yunishard.journal_tools.export_file import ExportReader
from yunishard.journal_tools.sources import find_journal
from yunishard.journal_tools.views import read_all
from yunishard.partition_worker.recovery import JournalDamaged


@pytest.fixture(params=["steps", "snapshot"])
def journal(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A journal with or without a snapshot."""
    one = preempting()
    return one.write(tmp_path, snapshot_after=len(one.steps) if request.param == "snapshot" else 0)


def export(journal: Path, target: Path) -> Path:
    assert main(["journal", "export", str(journal), "--complete", "--output", str(target)]) == 0
    return target


@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.gz"])
def test_everything_in_a_journal_is_in_its_export(journal: Path, suffix: str) -> None:
    target = export(journal, journal.with_name(f"whole.{suffix}"))
    original = read_all(find_journal(str(journal), state=None, store=None)).recovery
    found = read_all(find_journal(str(target), state=None, store=None)).recovery
    assert content(found.image) == content(original.image)
    assert list(found.outbox.unacknowledged()) == list(original.outbox.unacknowledged())
    for name in ("last", "at", "session", "received", "_cause"):
        assert getattr(found, name) == getattr(original, name), name
    with closing(ExportReader(target)) as exported:
        known = reader(files_in(journal.parent))
        assert list(exported.read_steps(1)) == list(known.read_steps(1))
        assert exported.find_first() == exported.read_meta().begins == known.read_meta().begins
    assert target.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("action", ["show", "steps", "sums", "verify", "replay"])
def test_the_other_commands_read_an_export(journal: Path, capsys: pytest.CaptureFixture[str], action: str) -> None:
    target = export(journal, journal.with_name("whole.jsonl"))
    capsys.readouterr()
    assert main(["journal", action, str(journal)]) == 0
    of_journal = capsys.readouterr().out
    assert main(["journal", action, str(target)]) == 0
    of_export = capsys.readouterr().out
    if action == "verify":  # an export has a snapshot of another size
        of_journal, of_export = of_journal[:20], of_export[:20]
    assert of_export == of_journal
    assert PARTITION in of_export or action in ("steps", "sums")


def test_an_export_that_is_cut_off_is_damaged(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = export(journal, journal.with_name("whole.jsonl"))
    lines = target.read_text().splitlines(keepends=True)
    target.write_text("".join(lines[:-1]))
    assert main(["journal", "verify", str(target)]) == 1
    assert f"damaged: it is cut off after line {len(lines) - 1}" in capsys.readouterr().err
    target.write_text("".join(lines[:-1]) + lines[-1][:-8])
    assert main(["journal", "show", str(target)]) == 1
    assert f"line {len(lines)} cannot be decoded" in capsys.readouterr().err


def test_a_compressed_export_that_is_cut_off_is_damaged(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = export(journal, journal.with_name("whole.jsonl.gz"))
    target.write_bytes(target.read_bytes()[:-20])
    assert main(["journal", "show", str(target)]) == 1
    assert "cannot be decoded" in capsys.readouterr().err


def test_a_compressed_export_has_no_name_and_no_time_inside(journal: Path) -> None:
    first = export(journal, journal.with_name("secret-name.jsonl.gz")).read_bytes()
    assert b"secret-name" not in first
    assert export(journal, journal.with_name("other.jsonl.gz")).read_bytes() == first
    assert json.loads(gzip.decompress(first).splitlines()[0])["journal"]["partition"] == PARTITION


def test_a_file_of_a_later_format_is_refused(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = export(journal, journal.with_name("whole.jsonl"))
    target.write_text(target.read_text().replace('"format":1', '"format":9', 1))
    assert main(["journal", "show", str(target)]) == 2
    assert "it has format 9, and this release reads formats up to 1" in capsys.readouterr().err


def test_a_list_of_steps_cannot_be_replayed(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = journal.with_name("steps.jsonl")
    assert main(["journal", "export", str(journal), "--output", str(target)]) == 0
    assert main(["journal", "replay", str(target)]) == 2
    assert "not an export that can be replayed" in capsys.readouterr().err


def test_names_are_written_only_for_an_anonymised_export(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["journal", "export", str(journal), "--names", str(journal.with_name("names"))]) == 2
    assert "--names needs --anonymise" in capsys.readouterr().err


def test_a_message_of_another_release_is_kept_as_bytes(journal: Path) -> None:
    target = export(journal, journal.with_name("whole.jsonl"))
    lines = target.read_text().splitlines()
    at = next(number for number, line in enumerate(lines) if '"AllocationResponse"' in line)
    document = json.loads(lines[at])
    sent = document.get("step") or document["snapshot"]
    one = (sent.get("unacknowledged") or sent["told"])[0]
    one |= {"kind": "Unknown", "encoded": "AAEC"}
    del one["body"]
    lines[at] = json.dumps(document)
    target.write_text("\n".join(lines) + "\n")
    recovery = read_all(find_journal(str(target), state=None, store=None)).recovery
    assert ("Unknown", b"\x00\x01\x02") in [(kind, body) for _, kind, body in recovery.outbox.unacknowledged()]


def test_an_empty_file_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "empty.jsonl"
    path.write_bytes(b"")
    with pytest.raises((JournalDamaged, OSError)):
        find_journal(str(path), state=None, store=None)


def test_a_compressed_export_with_another_byte_is_damaged(journal: Path) -> None:
    target = export(journal, journal.with_name("whole.jsonl.gz"))
    content = bytearray(target.read_bytes())
    for place in range(len(content) // 2, len(content), 97):
        content[place] ^= 0x55
        target.write_bytes(content)
        assert main(["journal", "verify", str(target)]) == 1
        content[place] ^= 0x55


def test_an_export_that_is_missing_or_asked_for_something_else_is_named(
    journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["journal", "show", "missing.jsonl"]) == 2
    assert "missing.jsonl: No such file or directory" in capsys.readouterr().err
    target = export(journal, journal.with_name("whole.jsonl"))
    assert main(["journal", "poison", str(target)]) == 2
    assert "an export has no quarantined messages" in capsys.readouterr().err
