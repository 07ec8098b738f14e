"""Permissions of secrets."""

import os
import stat

import pytest

from common.folders import is_exposed

OWN, OTHER, ROOT = 1000, 1001, 0


def status(mode: int, uid: int) -> os.stat_result:
    return os.stat_result((stat.S_IFREG | mode, 0, 0, 1, uid, 0, 0, 0, 0, 0))


@pytest.mark.parametrize(
    ("process", "owner", "mode", "exposed"),
    [
        (OWN, OWN, 0o600, False),
        (OWN, OWN, 0o400, False),
        (OWN, OWN, 0o640, True),
        (OWN, OWN, 0o604, True),
        (OWN, ROOT, 0o440, False),  # a Secret of Kubernetes, with fsGroup
        (OWN, ROOT, 0o640, False),
        (OWN, ROOT, 0o660, True),
        (OWN, ROOT, 0o444, True),
        (OWN, OTHER, 0o440, True),
        (ROOT, ROOT, 0o600, False),
        (ROOT, ROOT, 0o640, True),
    ],
)
def test_only_the_group_of_a_file_of_root_may_read_a_secret(
    monkeypatch: pytest.MonkeyPatch, process: int, owner: int, mode: int, exposed: bool
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: process)
    assert is_exposed(status(mode, owner)) is exposed
