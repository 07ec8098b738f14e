"""Access control follows from the settings."""

from pathlib import Path

import pytest

from common.settings import Settings
from common.token_keys import write_secret
from webservice.service import make_access_control


def test_by_default_authentication_and_audit_are_off() -> None:
    found = make_access_control(Settings())
    assert (found.is_off, found.cors.named_only, found.audit) == (True, False, None)


@pytest.mark.parametrize("method", ["token", "certificate", "proxy"])
def test_each_method_turns_authentication_on(tmp_path: Path, method: str) -> None:
    write_secret(tmp_path / "keys")
    networks = ("::1", "10.0.0.0/8")
    settings = Settings(auth=(method,), auth_keys=tmp_path / "keys", auth_proxy=networks, state=tmp_path)
    found = make_access_control(settings)
    assert (found.is_off, found.cors.named_only) == (False, True)
    assert found.cors.credentials is (method != "token")
    assert found.audit is not None


def test_keys_of_tokens_that_cannot_be_used_are_one_line(tmp_path: Path) -> None:
    missing = tmp_path / "none"
    with pytest.raises(OSError, match=f"^{missing}: cannot be read: no such file or directory$"):
        make_access_control(Settings(auth=("token",), auth_keys=missing))
