from collections.abc import Callable
from pathlib import Path

import pytest

from common.curve_keys import read_public, write_pair
from common.settings import Settings, SettingsError
from deploy.preflight import check_exposure, check_native_keys
from deploy.settings import resolve_settings


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Keys as `yunishard keys` makes them."""
    public, _ = write_pair(tmp_path, "server")
    (tmp_path / "allowed").write_text(f"{read_public(public)} rm-1\n")
    return tmp_path


def settings(**flags: Path) -> Settings:
    given = {name.replace("_", "-"): str(value) for name, value in flags.items()}
    return resolve_settings(given, {"XDG_STATE_HOME": "/xdg"})


def test_without_them_nothing_is_checked() -> None:
    check_native_keys(settings())


def test_a_directory_or_the_file_in_it_names_the_keys(folder: Path) -> None:
    check_native_keys(settings(native_keys=folder))
    check_native_keys(settings(native_keys=folder / "server.key_secret"))


def test_the_list_may_be_elsewhere(folder: Path) -> None:
    other = (folder / "allowed").rename(folder / "other")
    check_native_keys(settings(native_keys=folder, native_allowed=other))


def test_a_port_with_keys_may_be_open_to_all(folder: Path) -> None:
    flags = {"native": "tcp://0.0.0.0:9090", "native-keys": str(folder)}
    check_exposure(resolve_settings(flags, {"XDG_STATE_HOME": "/xdg"}))


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
    with pytest.raises(SettingsError) as refused:
        check_native_keys(settings(native_keys=folder))
    assert str(refused.value).startswith(reason.format(folder=folder))
    assert "\n" not in str(refused.value)


def test_a_list_needs_keys(folder: Path) -> None:
    with pytest.raises(SettingsError, match="--native-allowed: needs --native-keys too"):
        check_native_keys(settings(native_allowed=folder / "allowed"))
