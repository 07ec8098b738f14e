""""""

import stat
from pathlib import Path

import pytest
import zmq

from yunishard.common.transport.curve_keys import (
    KEYS_MAX,
    AllowedKey,
    AllowListError,
    ClientKeys,
    KeyFileError,
    KeyPair,
    fingerprint,
    is_key,
    parse_allow_line,
    parse_allow_list,
    read_pair,
    read_public,
    server_file,
    write_pair,
)


def test_a_pair_is_written_to_two_files_and_read_again(tmp_path: Path) -> None:
    public, secret = write_pair(tmp_path, "rm-1")
    assert (public.name, secret.name) == ("rm-1.key", "rm-1.key_secret")
    pair = read_pair(secret)
    assert read_public(public) == read_public(secret) == pair.public
    assert zmq.curve_public(pair.secret.encode()).decode() == pair.public
    assert pair.secret not in public.read_text()


def test_only_the_owner_reads_a_secret_whatever_the_umask_says(tmp_path: Path) -> None:
    public, secret = write_pair(tmp_path, "rm-1")
    assert stat.S_IMODE(public.stat().st_mode) == 0o644
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600


@pytest.mark.parametrize("there", ["rm-1.key", "rm-1.key_secret"])
def test_no_key_is_overwritten(there: str, tmp_path: Path) -> None:
    (tmp_path / there).write_text("mine")
    with pytest.raises(FileExistsError, match=there):
        write_pair(tmp_path, "rm-1")
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [(there, "mine")]


def test_the_files_are_those_of_other_programs_that_speak_zeromq(tmp_path: Path) -> None:
    from zmq.auth import create_certificates, load_certificate

    _, secret = write_pair(tmp_path, "ours")
    pair = read_pair(secret)
    assert load_certificate(secret) == (pair.public.encode(), pair.secret.encode())
    create_certificates(tmp_path, "theirs")
    theirs = tmp_path / "theirs.key_secret"
    theirs.chmod(0o600)
    assert (read_pair(theirs).public.encode(), read_pair(theirs).secret.encode()) == load_certificate(theirs)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_a_secret_that_others_can_read_is_refused(mode: int, tmp_path: Path) -> None:
    _, secret = write_pair(tmp_path, "rm-1")
    secret.chmod(mode)
    with pytest.raises(KeyFileError, match=f"others can read this secret key \\(mode {mode:o}\\): chmod 600"):
        read_pair(secret)


def test_what_cannot_be_used_is_told_without_what_is_in_it(tmp_path: Path) -> None:
    public, _ = write_pair(tmp_path, "rm-1")
    odd = tmp_path / "odd"
    odd.write_bytes(b'secret-key = "\xff' + b"hunter2" * 1000)
    for file, reason in (
        (tmp_path / "none", "cannot be read: no such file"),
        (tmp_path, "cannot be read: is a directory"),
        (public, "holds no secret key (the one that ends in .key_secret has it)"),
        (odd, "holds no secret key (`yunishard keys new` makes one)"),
    ):
        with pytest.raises(KeyFileError) as error:
            read_pair(file)
        assert str(error.value).startswith(f"{file}: {reason}")
        assert "hunter2" not in str(error.value)


def test_a_pair_does_not_show_its_secret() -> None:
    pair = KeyPair.new()
    assert pair.secret not in f"{pair!r} {pair}"


def test_a_fingerprint_belongs_to_a_key() -> None:
    one, other = fingerprint(KeyPair.new().public), fingerprint(KeyPair.new().public)
    assert one != other
    assert len(one) == len(other) == 16


def test_a_resource_manager_finds_the_key_of_the_server_beside_its_own(tmp_path: Path) -> None:
    write_pair(tmp_path, "server")
    _, secret = write_pair(tmp_path, "rm-1")
    keys = ClientKeys.beside(secret)
    assert keys.server == read_public(tmp_path / "server.key")
    assert keys.own == read_pair(secret)
    (tmp_path / "server.key").unlink()
    with pytest.raises(KeyFileError, match=r"server\.key: cannot be read"):
        ClientKeys.beside(secret)


def test_the_server_is_found_in_its_directory(tmp_path: Path) -> None:
    _, secret = write_pair(tmp_path, "server")
    assert server_file(tmp_path) == server_file(secret) == secret


KEY = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"
OTHER = "JTKVSB%%)wK0E.X)V>+}o?pNmC{O&4W4b!Ni{Lh6"


def test_a_list_says_which_key_may_speak_for_whom() -> None:
    listed = parse_allow_list(f"# who may\n\n{KEY}  rm-1,test-*  # 2026-11-21 upstairs\n{OTHER}\trm-2\n")
    assert listed[KEY] == AllowedKey(KEY, ("rm-1", "test-*"), comment="upstairs", since="2026-11-21")
    assert listed[OTHER] == AllowedKey(OTHER, ("rm-2",))
    assert [rm for rm in ("rm-1", "test-", "test-7", "rm-2", "rm-11", "atest-1", "") if listed[KEY].allows(rm)] == [
        "rm-1",
        "test-",
        "test-7",
    ]


def test_a_key_that_is_not_listed_speaks_for_nobody() -> None:
    assert OTHER not in parse_allow_list(f"{KEY} *")


def test_a_star_admits_only_what_can_be_an_id() -> None:
    listed = parse_allow_list(f"{KEY} *")
    assert listed[KEY].allows("x" * 64)
    assert not listed[KEY].allows("x" * 65)
    assert not listed[KEY].allows("rm 1")


def test_an_entry_is_written_as_it_is_read() -> None:
    for one in (
        AllowedKey(KEY, ("a", "b-*")),
        AllowedKey(KEY, ("a",), comment="# odd, as comments may be"),
        AllowedKey(KEY, ("a",), since="2026-01-02"),
        AllowedKey(KEY, ("a",), comment="here", since="2026-01-02"),
    ):
        assert parse_allow_line(one.line()) == one


@pytest.mark.parametrize("line", ["", "   ", "# comment", "#comment", f"# {KEY} rm-1", "#" * 40])
def test_a_line_that_says_nothing(line: str) -> None:
    assert parse_allow_line(line) is None


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("rm-1", "line 2: expected a public key of 40 characters, RM ids"),
        (KEY, "line 2: expected a public key of 40 characters, RM ids"),
        (f"{KEY[1:]} rm-1", "line 2: expected a public key of 40 characters, RM ids"),
        (f"{KEY}~ rm-1", "line 2: expected a public key of 40 characters, RM ids"),
        (f"{KEY} rm 1", "line 2: 'rm 1' is no RM id"),
        (f"{KEY} rm-1,,rm-2", "line 2: '' is no RM id"),
        (f"{OTHER} rm-2", "line 2: this key is there already"),
    ],
)
def test_what_is_wrong_is_told_with_the_number_of_its_line(line: str, reason: str) -> None:
    with pytest.raises(AllowListError) as error:
        parse_allow_list(f"{OTHER} rm-1\n{line}\n")
    assert str(error.value).startswith(reason)
    assert KEY not in str(error.value)


def test_a_list_has_an_end() -> None:
    keys = [f"{number:040}" for number in range(KEYS_MAX + 1)]
    with pytest.raises(AllowListError, match=f"at most {KEYS_MAX}"):
        parse_allow_list("\n".join(f"{key} rm" for key in keys))
    assert len(parse_allow_list("\n".join(f"{key} rm" for key in keys[1:]))) == KEYS_MAX


def test_not_every_text_of_forty_characters_is_a_key() -> None:
    assert is_key(KEY)
    assert not is_key(KEY[:-1])
    assert not is_key(KEY[:-1] + "~")
    assert not is_key("#" + KEY[1:]), "five digits of Z85 are a number below 2**32, so none begin with the last digit"
