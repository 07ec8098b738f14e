"""How the SDK takes a port that it cannot get into; how it gets in is in `tests/processes/test_keys.py`."""

import shutil
from pathlib import Path

import pytest

from common.keys import KeyFileError, fingerprint, read_public, write_pair
from tests.rmproxy.port import ONE, SERVER, Port, play
from tests.yunishard.fake_core import FakeCore
from tests.yunishard.fake_core import play as alone
from yunishard.manager import KEYS_VARIABLE, KeyRefused, ResourceManager

SOON_S = 15.0
"""Long before the deadline of a connection."""


def pair_of(folder: Path, *, server: str) -> Path:
    """A new pair, with this as the server's public key beside it."""
    _, secret = write_pair(folder, "rm-1")
    shutil.copy(folder / "rm-1.key", folder / "server.key")
    (folder / "server.key").write_text(f'public-key = "{server}"')
    return secret


async def refusal(address: str, keys: Path | str) -> str:
    with pytest.raises(KeyRefused) as error:
        await ResourceManager.connect(address, rm_id="rm-1", keys=keys, timeout_s=SOON_S)
    return str(error.value).removeprefix(f"{address} does not let rm-1 in: ")


def test_a_key_that_is_not_listed_hears_so_at_once(tmp_path: Path) -> None:
    async def story(port: Port) -> None:
        keys = pair_of(tmp_path, server=SERVER.public)
        ours = fingerprint(read_public(keys))
        told = f"our key {ours} is not on its allow-list (`yunishard keys allow` puts it there)"
        assert await refusal(port.router.address, keys) == told

    play(tmp_path, story)


def test_another_server_than_the_one_we_know_is_found_out(tmp_path: Path) -> None:
    async def story(port: Port) -> None:
        keys = pair_of(tmp_path, server=ONE.public)
        told = f"it hangs up: its key is not {fingerprint(ONE.public)}, as our file says, or it has none"
        assert await refusal(port.router.address, keys) == told

    play(tmp_path, story)


def test_without_keys_a_port_with_keys_says_so(tmp_path: Path) -> None:
    async def story(port: Port) -> None:
        told = "it takes only connections with keys (YUNISHARD_KEYS names the file of ours)"
        assert await refusal(port.router.address, "") == told

    play(tmp_path, story)


def test_nothing_is_said_in_clear_to_a_port_that_has_no_keys(tmp_path: Path) -> None:
    async def story() -> None:
        keys = pair_of(tmp_path, server=ONE.public)
        async with FakeCore() as core:
            assert await refusal(core.address, keys) in (
                "it has no keys, and we want it to",
                f"it hangs up: its key is not {fingerprint(ONE.public)}, as our file says, or it has none",
            )

    alone(story)


def test_the_environment_names_the_keys_of_who_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEYS_VARIABLE, str(tmp_path / "nowhere"))

    async def story() -> None:
        with pytest.raises(KeyFileError, match="nowhere: cannot be read"):
            await ResourceManager.connect("tcp://127.0.0.1:1", rm_id="rm-1")

    alone(story)
