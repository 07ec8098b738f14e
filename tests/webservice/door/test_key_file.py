"""A file of keys that changes while it is used."""

import logging
from pathlib import Path

import pytest

from common.token_keys import TokenKeyError
from tests.webservice.door.identities import jwks, rsa_jwk, secret_jwk
from webservice.door.key_file import LOOK_EVERY_S, KeyFile


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def ids(file: KeyFile) -> list[str]:
    return [key.id for key in file.keys().keys]


def test_another_content_counts_after_the_next_look(tmp_path: Path) -> None:
    path, clock = tmp_path / "keys", Clock()
    path.write_bytes(jwks(rsa_jwk()))
    file = KeyFile(path, clock)
    path.write_bytes(jwks(rsa_jwk(kid="new"), rsa_jwk()))
    assert ids(file) == ["rsa"]
    clock.now += LOOK_EVERY_S
    assert ids(file) == ["new", "rsa"]
    path.write_bytes(jwks(rsa_jwk(kid="newest")))
    assert ids(file) == ["new", "rsa"]
    clock.now += LOOK_EVERY_S
    assert ids(file) == ["newest"]


@pytest.mark.parametrize("broken", [b"", b'{"keys":[]}', None, jwks(secret_jwk())])
def test_while_it_is_broken_the_keys_before_hold_and_the_log_says_it_once(
    tmp_path: Path, broken: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "core.rest")
    path, clock = tmp_path / "keys", Clock()
    path.write_bytes(jwks(rsa_jwk()))
    path.chmod(0o644)
    file = KeyFile(path, clock)
    path.write_bytes(broken) if broken is not None else path.unlink()
    for _ in range(3):
        clock.now += LOOK_EVERY_S
        assert ids(file) == ["rsa"]
    [line] = caplog.messages
    assert line.startswith(f"the token keys are not usable, so the previous ones stay in force: {path}: ")
    path.write_bytes(jwks(rsa_jwk(kid="mended")))
    clock.now += LOOK_EVERY_S
    assert ids(file) == ["mended"]


def test_one_that_is_broken_from_the_beginning_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TokenKeyError, match="cannot be read"):
        KeyFile(tmp_path / "none")
