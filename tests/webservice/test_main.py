"""Startup and access control follow from the settings."""

from dataclasses import replace
from pathlib import Path

import pytest

from common.settings import EffectiveSetting, Settings
from common.token_keys import write_secret
from tests.webservice.fakes import people
from webservice.__main__ import access_control_of, startup_of
from webservice.history.recorder import HistoryFile
from webservice.views import SettingView


def test_without_more_nothing_is_kept_and_nothing_else_is_served() -> None:
    found = startup_of(Settings())
    assert (found.settings, found.history, found.web_root, found.debug, found.cors) == ((), None, None, False, ())


def test_the_routes_know_what_they_need_of_the_settings() -> None:
    web_root, cors = Path("/ui"), ("https://a", "http://b")
    settings = Settings(
        effective=(EffectiveSetting("rest", "a:1", "--rest", "--rest"),),
        state=Path("/s"),
        history_max_bytes=1000,
        history_age_s=60.0,
        web_root=web_root,
        debug=True,
        cors=cors,
        default_rm="a",
    )
    found = startup_of(settings)
    assert found.settings == (SettingView("rest", "a:1", "--rest"),)
    assert found.history == HistoryFile(Path("/s/history/history.sqlite"), 1000, 60.0)
    assert (found.state, found.web_root, found.debug, found.cors) == (Path("/s"), web_root, True, cors)
    assert found.default_rm == "a"
    assert startup_of(replace(settings, history=False)).history is None


def test_without_more_the_door_is_open_and_nothing_is_written_down() -> None:
    found = access_control_of(Settings(), people())
    assert (found.authorizer.is_off, found.cors.named_only, found.audit) == (True, False, None)


@pytest.mark.parametrize("method", ["token", "certificate", "proxy"])
def test_each_way_closes_the_door(tmp_path: Path, method: str) -> None:
    write_secret(tmp_path / "keys")
    networks = ("::1", "10.0.0.0/8")
    settings = Settings(auth=(method,), auth_keys=tmp_path / "keys", auth_proxy=networks, state=tmp_path)
    found = access_control_of(settings, people())
    assert (found.authorizer.is_off, found.cors.named_only) == (False, True)
    assert found.cors.credentials is (method != "token")
    assert found.audit is not None


def test_keys_of_tokens_that_cannot_be_used_are_one_line(tmp_path: Path) -> None:
    missing = tmp_path / "none"
    with pytest.raises(OSError, match=f"^{missing}: cannot be read: no such file or directory$"):
        access_control_of(Settings(auth=("token",), auth_keys=missing), people())
