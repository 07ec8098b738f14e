from collections.abc import Callable
from pathlib import Path

import pytest

from common.curve_keys import read_public, write_pair
from deploy.exposure import check_exposure
from deploy.native_keys import native_keys
from deploy.settings import Settings, settings_from
from deploy.values import Unusable


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Keys as `yunishard keys` makes them."""
    public, _ = write_pair(tmp_path, "server")
    (tmp_path / "allowed").write_text(f"{read_public(public)} rm-1\n")
    return tmp_path


def settings(**flags: Path) -> Settings:
    given = {name.replace("_", "-"): str(value) for name, value in flags.items()}
    return settings_from(given, {"XDG_STATE_HOME": "/xdg"})


def test_without_them_there_are_no_keys() -> None:
    assert native_keys(settings()) is None


def test_a_directory_or_the_file_in_it_names_the_keys(folder: Path) -> None:
    by_directory = native_keys(settings(native_keys=folder))
    by_file = native_keys(settings(native_keys=folder / "server.key_secret"))
    assert by_directory == by_file
    assert by_file is not None
    assert by_file.arguments == (
        *("--keys", str(folder / "server.key_secret")),
        *("--allowed-keys", str(folder / "allowed")),
    )


def test_the_list_may_be_elsewhere(folder: Path) -> None:
    other = (folder / "allowed").rename(folder / "other")
    keys = native_keys(settings(native_keys=folder, native_allowed=other))
    assert keys is not None
    assert keys.allowed == other


def test_a_port_with_keys_may_be_open_to_all(folder: Path) -> None:
    flags = {"native": "tcp://0.0.0.0:9090", "native-keys": str(folder)}
    check_exposure(settings_from(flags, {"XDG_STATE_HOME": "/xdg"}))


def _unlink(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).unlink()


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (_unlink("server.key_secret"), "--native-keys: {folder}/server.key_secret: cannot be read: no such file"),
        (
            _unlink("allowed"),
            "--native-allowed: {folder}/allowed: cannot be read: no such file or directory; `yunishard",
        ),
        (
            lambda folder: (folder / "server.key_secret").chmod(0o644),
            "--native-keys: {folder}/server.key_secret: others can read this secret key (mode 644): chmod 600",
        ),
        (
            lambda folder: (folder / "server.key").rename(folder / "server.key_secret"),
            "--native-keys: {folder}/server.key_secret: holds no secret key",
        ),
        (
            lambda folder: (folder / "allowed").write_text("\nrm-1\n"),
            "--native-allowed: {folder}/allowed: line 2: expected",
        ),
        (
            lambda folder: (folder / "allowed").write_bytes(b"\xff"),
            "--native-allowed: {folder}/allowed: cannot be read",
        ),
    ],
    ids=["no key", "no list", "open key", "public key", "broken list", "binary list"],
)
def test_files_that_the_port_could_not_use_are_refused_before_anything_starts(
    spoil: Callable[[Path], object], reason: str, folder: Path
) -> None:
    spoil(folder)
    with pytest.raises(Unusable) as refused:
        native_keys(settings(native_keys=folder))
    assert str(refused.value).startswith(reason.format(folder=folder))
    assert "\n" not in str(refused.value)


def test_a_list_needs_keys(folder: Path) -> None:
    with pytest.raises(Unusable, match="--native-allowed: needs --native-keys too"):
        native_keys(settings(native_allowed=folder / "allowed"))
