"""`yunishard token`: the key file, tokens that the web service takes, and what is in one."""

import io
import json
from pathlib import Path

import jwt
import pytest

from tests.webservice.identities import jwks, rsa_jwk
from yunishard.cli.main import main
from yunishard.common.transport.token_keys import read_token_keys
from yunishard.webservice.credentials import Identity, InvalidToken, verify_token


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the key file is if nothing is said; it is there."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert token("--new-key") == 0
    return tmp_path / "yunishard" / "tokens.jwks"


def token(*words: str) -> int:
    return main(["token", *words])


def made(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert token(*words) == 0
    text, newline = capsys.readouterr().out[:-1], capsys.readouterr().err
    assert "\n" not in text + newline
    return text


def issued(text: str) -> int:
    return int(shown(text)["iat"])


def shown(text: str) -> dict[str, int]:
    return jwt.decode(text, options={"verify_signature": False})


def test_a_new_key_is_for_its_owner_only_and_is_never_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = tmp_path / "new" / "keys"
    assert token("--new-key", "--keys", str(keys)) == 0
    assert keys.stat().st_mode & 0o777 == 0o600
    said = capsys.readouterr()
    assert f"yunishard up --auth token --auth-keys {keys}" in said.out
    assert json.loads(keys.read_text())["keys"][0]["k"] not in said.out
    before = keys.read_text()
    assert token("--new-key", "--keys", str(keys)) == 1
    assert capsys.readouterr().err == f"yunishard token: {keys}: there is one already; it has not changed\n"
    assert keys.read_text() == before


def test_a_token_says_who_somebody_is_and_nothing_else_is_printed(
    keys: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = made(capsys, "alice", "--groups", "ops, dev")
    began = issued(text)
    assert verify_token(text, read_token_keys(keys), now=began) == Identity("alice", ("ops", "dev"))
    assert shown(text)["exp"] - began == 12 * 3600


def test_one_for_looking_can_only_look(keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = made(capsys, "prometheus", "--scope", "read", "--lifetime", "90d")
    found = verify_token(text, read_token_keys(keys), now=issued(text) + 89 * 86400)
    assert found == Identity("prometheus", read_only=True)


def test_issuer_and_audience_are_named_where_they_are_wanted(keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, terms = made(capsys, "alice", "--issuer", "us", "--audience", "here"), {"issuer": "us", "audience": "here"}
    assert verify_token(text, read_token_keys(keys), **terms, now=issued(text)).user == "alice"
    with pytest.raises(InvalidToken, match="issuer"):
        verify_token(made(capsys, "alice"), read_token_keys(keys), **terms, now=issued(text))


def test_a_token_of_another_key_file_does_not_count(
    keys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    assert token("--new-key", "--keys", str(other)) == 0
    text = made(capsys, "alice", "--keys", str(other))
    with pytest.raises(InvalidToken, match="no key here"):
        verify_token(text, read_token_keys(keys), now=issued(text))


def test_json_has_the_token_and_what_is_in_it(keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert token("alice", "--lifetime", "1h", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["claims"]["exp"] - found["claims"]["iat"] == 3600
    assert verify_token(found["token"], read_token_keys(keys), now=found["claims"]["iat"]).user == "alice"


@pytest.mark.parametrize("lifetime", ["91d", "0s", "-1h", "soon", "", "0.5s", "9999d", "2161h"])
def test_a_lifetime_has_bounds(keys: Path, lifetime: str, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert token("alice", f"--lifetime={lifetime}") == 2
    assert capsys.readouterr().err.startswith("yunishard token: --lifetime: expected a duration from 1s to 90d, ")


@pytest.mark.parametrize("words", [(), ("alice", "--new-key"), ("alice", "--show", "x"), ("--new-key", "--show", "x")])
def test_one_thing_at_a_time(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert token(*words) == 2
    assert "give one of USER, --new-key and --show" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("",), ("a\nb",), ("x" * 257,), ("alice", "--groups", "a,,b")])
def test_a_name_that_nobody_has_is_refused(keys: Path, words: tuple[str, ...]) -> None:
    assert token(*words) == 2


def test_a_token_that_nobody_would_take_is_not_made(keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert token("alice", "--groups", ",".join(f"{number:0200}" for number in range(40))) == 2
    assert "8192 are the most: name fewer groups" in capsys.readouterr().err


def test_without_a_secret_nothing_is_signed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert token("alice", "--keys", str(tmp_path / "none")) == 2
    assert "`yunishard token --new-key` makes one" in capsys.readouterr().err
    (tmp_path / "public").write_bytes(jwks(rsa_jwk()))
    assert token("alice", "--keys", str(tmp_path / "public")) == 2
    assert "holds no secret to sign with" in capsys.readouterr().err


def test_what_is_in_a_token_is_shown_without_trusting_it(
    keys: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = made(capsys, "alice", "--groups", "ops")
    forged = text.rpartition(".")[0] + "." + "A" * 43
    for words in (("--show", forged), ("--show",), ("--show", "-")):
        monkeypatch.setattr("sys.stdin", io.StringIO(forged + "\n"))
        assert token(*words) == 0
        said = capsys.readouterr().out
        assert said.startswith("not verified: a forged token can contain anything\n")
        assert '\nsub     "alice"\n' in said
        assert '\ngroups  ["ops"]\n' in said
        assert " UTC)\n" in said
    assert token("--show", forged, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["verified"], found["header"]["alg"], found["claims"]["sub"]) == (False, "HS256", "alice")


def test_that_a_token_has_expired_is_said_and_control_characters_stay_text(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = jwt.encode({"exp": 1, "nbf": 10**30, "\x1b[2J": "\x1b[2J"}, "x" * 32, "HS256")
    assert token("--show", text) == 0
    said = capsys.readouterr().out
    assert "1 (1970-01-01 00:00:01 UTC, expired)" in said
    assert "(no time)" in said
    assert "\x1b" not in said


@pytest.mark.parametrize("text", ["", "alice", "a.b.c", "x" * 9000, "e30.e30"])
def test_what_is_no_token_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert token("--show", text) == 1
    assert capsys.readouterr().err.count("\n") == 1
