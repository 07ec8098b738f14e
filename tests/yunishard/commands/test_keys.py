"""`yunishard keys`: pairs and the list of those that are allowed."""

import json
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from yunishard.cli.main import main
from yunishard.common.transport.curve_keys import KeyPair, fingerprint, parse_allow_list, read_pair, read_public


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where keys are if nothing is said."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path / "yunishard"


def keys(*words: str) -> int:
    return main(["keys", *words])


def listed(folder: Path) -> dict[str, tuple[str, ...]]:
    return {key: one.rm_ids for key, one in parse_allow_list((folder / "allowed").read_text()).items()}


def test_new_makes_a_pair_and_says_what_to_do_next(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert keys("new", "server") == keys("new", "rm-1") == 0
    said = capsys.readouterr().out
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert fingerprint(read_public(folder / "rm-1.key")) in said
    assert f"yunishard up --native-keys {folder}" in said
    assert f"yunishard keys allow {folder / 'rm-1.key'} RM-ID" in said
    assert read_pair(folder / "rm-1.key_secret").secret not in said


def test_new_overwrites_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert keys("new", "rm-1") == 0
    before = (folder / "rm-1.key_secret").read_text()
    assert keys("new", "rm-1") == 1
    assert capsys.readouterr().err == f"yunishard keys new: {folder / 'rm-1.key'}: there is one already\n"
    assert (folder / "rm-1.key_secret").read_text() == before


def test_a_key_is_allowed_by_its_file_or_by_itself(folder: Path) -> None:
    assert keys("new", "rm-1") == 0
    other = KeyPair.new().public
    assert keys("allow", str(folder / "rm-1.key"), "rm-1,test-*", "--comment", "up  stairs") == 0
    assert keys("allow", other, "rm-2") == 0
    ours = read_public(folder / "rm-1.key")
    assert listed(folder) == {ours: ("rm-1", "test-*"), other: ("rm-2",)}
    assert keys("allow", ours, "rm-3") == 1, "what it may already must not change by the way"
    assert listed(folder)[ours] == ("rm-1", "test-*")


def test_a_key_file_that_is_not_here_is_looked_for_where_the_keys_are(folder: Path) -> None:
    assert keys("new", "rm-1") == 0
    assert keys("allow", "rm-1.key", "rm-1") == 0
    assert listed(folder) == {read_public(folder / "rm-1.key"): ("rm-1",)}
    assert keys("revoke", "rm-1.key") == 0
    assert listed(folder) == {}


def test_an_empty_list_says_how_to_let_one_in(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert keys("list") == 0
    told = f"{folder / 'allowed'} allows no key; `yunishard keys allow FILE RM-ID` adds one\n"
    assert capsys.readouterr().err == told


def test_a_secret_never_gets_into_the_list(folder: Path) -> None:
    assert keys("new", "rm-1") == 0
    assert keys("allow", str(folder / "rm-1.key_secret"), "rm-1") == 0
    assert read_pair(folder / "rm-1.key_secret").secret not in (folder / "allowed").read_text()


def test_the_list_is_a_table_or_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = KeyPair.new().public
    assert keys("list") == 0
    assert capsys.readouterr().out == "FINGERPRINT  RM IDS  COMMENT  SINCE\n", "no list yet: nobody"
    keys("allow", key, "rm-1", "--comment", "here")
    capsys.readouterr()
    assert keys("list") == 0
    row = capsys.readouterr().out.splitlines()[1].split()
    assert row[:3] == [fingerprint(key), "rm-1", "here"]
    assert keys("list", "--json") == 0
    [entry] = json.loads(capsys.readouterr().out)
    assert entry == {
        "fingerprint": fingerprint(key),
        "publicKey": key,
        "rmIds": ["rm-1"],
        "comment": "here",
        "since": row[3],
    }


def test_a_key_is_revoked_by_itself_its_fingerprint_its_file_or_an_rm_id(folder: Path) -> None:
    keys("new", "rm-1")
    for name in (str(folder / "rm-1.key"), read_public(folder / "rm-1.key"), "rm-1"):
        assert keys("allow", str(folder / "rm-1.key"), "rm-1") == 0
        assert keys("revoke", name) == 0
        assert listed(folder) == {}
    assert keys("allow", str(folder / "rm-1.key"), "rm-1") == 0
    assert keys("revoke", fingerprint(read_public(folder / "rm-1.key"))) == 0
    assert listed(folder) == {}


def test_an_rm_id_is_taken_from_a_key_that_keeps_the_others(folder: Path) -> None:
    key, other = KeyPair.new().public, KeyPair.new().public
    keys("allow", key, "rm-1,rm-2", "--comment", "both")
    keys("allow", other, "rm-*")
    assert keys("revoke", "rm-1") == 0
    assert listed(folder) == {key: ("rm-2",), other: ("rm-*",)}
    assert "both" in (folder / "allowed").read_text()


def test_what_is_not_about_the_key_stays_as_it_is(folder: Path) -> None:
    folder.mkdir()
    kept = f"# ours\n\n  {KeyPair.new().public}   rm-7   #  spaced   out\n"
    (folder / "allowed").write_text(kept)
    (folder / "allowed").chmod(0o600)
    key = KeyPair.new().public
    assert keys("allow", key, "rm-1") == keys("revoke", key) == 0
    assert (folder / "allowed").read_text() == kept
    assert stat.S_IMODE((folder / "allowed").stat().st_mode) == 0o600
    assert [file.name for file in folder.iterdir()] == ["allowed"]


def test_nobody_is_lost_when_many_change_the_list_at_once(folder: Path) -> None:
    pairs = [KeyPair.new().public for _ in range(16)]
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda one: keys("allow", one, "rm-1"), pairs)) == {0}
    assert set(listed(folder)) == set(pairs)


@pytest.mark.parametrize(
    ("words", "status", "reason"),
    [
        (("revoke", "nobody"), 1, "has no key that 'nobody' stands for"),
        (("allow", "nowhere", "rm-1"), 2, "nowhere: cannot be read: no such file"),
        (("allow", KeyPair.new().public, "rm 1"), 2, "'rm 1' is no RM id"),
    ],
)
def test_what_cannot_be_done_is_told(
    words: tuple[str, ...], status: int, reason: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder.mkdir()
    assert keys(*words) == status
    said = capsys.readouterr().err
    assert reason in said
    assert said.startswith(f"yunishard keys {words[0]}: ")
    assert len(said.splitlines()) == 1


def test_a_broken_list_is_left_alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder.mkdir()
    (folder / "allowed").write_text("nonsense\n")
    for words in (("list",), ("allow", KeyPair.new().public, "rm-1"), ("revoke", "rm-1")):
        assert keys(*words) == 2
        assert f"{folder / 'allowed'}: line 1: expected a public key" in capsys.readouterr().err
    assert (folder / "allowed").read_text() == "nonsense\n"


def test_a_name_is_no_path(folder: Path) -> None:
    with pytest.raises(SystemExit):
        keys("new", "../outside")
    assert not folder.exists()
