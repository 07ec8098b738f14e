"""`yunishard cluster`: pairs of hosts, and the lists of those that are allowed."""

import stat
from pathlib import Path

import pytest

from yunishard.cli.main import main
from yunishard.common.transport.curve_keys import fingerprint, host_file, parse_allow_list, read_pair, read_public


def cluster(*words: object) -> int:
    return main(["cluster", *map(str, words)])


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    place = tmp_path / "keys"
    assert cluster("init", place, "a", "b") == 0
    return place


def public(keys: Path, host: str) -> str:
    found = read_public(keys / host / "host.key")
    assert read_pair(host_file(keys / host)).public == found, "both files are of one pair"
    return found


def allowed(keys: Path, host: str) -> dict[str, str]:
    found = parse_allow_list((keys / host / "allowed").read_text())
    return {key: one.rm_ids[0] for key, one in found.items()}


def test_each_host_gets_a_pair_and_the_keys_of_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys = tmp_path / "keys"
    assert cluster("init", keys, "a", "b") == 0
    everyone = {public(keys, name): name for name in "ab"}
    assert len(everyone) == 2
    assert allowed(keys, "a") == allowed(keys, "b") == everyone
    assert stat.S_IMODE(keys.stat().st_mode) == stat.S_IMODE((keys / "a").stat().st_mode) == 0o700
    said = capsys.readouterr().out
    assert fingerprint(public(keys, "a")) in said
    assert read_pair(host_file(keys / "a")).secret not in said


def test_hosts_join_and_the_others_keep_their_keys(keys: Path) -> None:
    before = [public(keys, name) for name in "ab"]
    assert cluster("init", keys, "b", "c") == 0
    assert [public(keys, name) for name in "ab"] == before
    everyone = {public(keys, name): name for name in "abc"}
    assert allowed(keys, "a") == allowed(keys, "b") == allowed(keys, "c") == everyone


def test_a_new_pair_is_allowed_beside_the_earlier_one_until_that_is_pruned(
    keys: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, old = public(keys, "a"), public(keys, "b")
    assert cluster("rotate", keys, "b") == 0
    new = public(keys, "b")
    assert new != old
    assert allowed(keys, "a") == allowed(keys, "b") == {a: "a", old: "b", new: "b"}
    assert cluster("prune", keys) == 0
    assert allowed(keys, "a") == allowed(keys, "b") == {a: "a", new: "b"}
    assert f"allowed: key {fingerprint(old)} of b is no longer allowed" in capsys.readouterr().out
    assert sorted(one.name for one in keys.iterdir()) == ["a", "b"], "nothing else is left"
    assert sorted(one.name for one in (keys / "b").iterdir()) == ["allowed", "host.key", "host.key_secret"]


def test_a_host_whose_directory_is_gone_is_not_allowed_any_more(keys: Path) -> None:
    for file in (keys / "b").iterdir():
        file.unlink()
    assert cluster("prune", keys) == 0
    assert allowed(keys, "a") == {public(keys, "a"): "a"}


def test_secret_keys_may_be_kept_elsewhere(keys: Path) -> None:
    host_file(keys / "a").unlink()
    assert cluster("init", keys, "c") == 0
    assert set(allowed(keys, "c").values()) == {"a", "b", "c"}


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (("rotate", "keys", "z"), 1, "keys/z has no keys: `yunishard cluster init keys z` makes them"),
        (("prune", "none"), 2, "none: no such file or directory"),
        (("prune", "empty"), 1, "empty has no hosts: `yunishard cluster init` creates their keys"),
    ],
)
def test_errors_name_what_is_wrong(
    words: tuple[str, ...],
    status: int,
    text: str,
    keys: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(keys.parent)
    Path("empty").mkdir()
    assert cluster(*words) == status
    assert text in capsys.readouterr().err


def test_names_of_hosts_are_checked(keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cluster("init", keys, "A/B")
    text = "argument HOST: expected up to 63 letters a-z, digits and '-', got 'A/B'"
    assert text in capsys.readouterr().err


def test_a_list_that_cannot_be_read_is_an_error_that_names_it(keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (keys / "a" / "allowed").write_text("nonsense\n")
    assert cluster("rotate", keys, "b") == 2
    assert f"{keys}/a/allowed: line 1: expected a public key" in capsys.readouterr().err


def test_keys_in_a_directory_that_others_may_replace_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = tmp_path / "keys"
    keys.mkdir()
    keys.chmod(0o777)
    assert cluster("init", keys, "a") == 2
    assert f"{keys}: all users may write to it" in capsys.readouterr().err
    assert not list(keys.iterdir())
