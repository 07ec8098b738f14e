import stat
from pathlib import Path

import pytest
import zmq

from common.curve_keys import (
    ClientKeys,
    KeyFileError,
    KeyPair,
    fingerprint,
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
