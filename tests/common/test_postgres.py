"""Connections to a store of several servers."""

import os
import resource
import socket
import time
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests import postgres
from tests.deploy.system import free_ports
from yunishard.common.postgres.connection import Database

LIMIT_S = 2
"""The least that libpq takes for a time limit."""


def test_a_server_that_hangs_delays_only_the_first_connection_of_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX) as hung:
        hung.bind(str(tmp_path / postgres.SOCKET))
        hung.listen()
        store = postgres.new_store().replace("host=", f"host={tmp_path},") + f"&connect_timeout={LIMIT_S}"
        monkeypatch.setattr(Database, "latest_server", "")
        took = []
        for name in ("first", "second"):
            begun = time.monotonic()
            with closing(Database(store, name)) as database, database.autocommit() as connection:
                assert connection.info.host != str(tmp_path)
            took.append(time.monotonic() - begun)
    assert took[0] >= LIMIT_S > took[1]


def test_a_connection_may_have_any_descriptor() -> None:
    """A process with many clients has more than `select` can handle."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, before[1]), before[1]))
    try:
        with (
            open(os.devnull) as file,
            closing(Database(postgres.new_store(), "test")) as database,
            ExitStack() as stack,
        ):
            while (copy := os.dup(file.fileno())) < 1024:
                stack.callback(os.close, copy)
            stack.callback(os.close, copy)
            for _ in range(2):
                with database.autocommit() as connection:
                    assert connection.fileno() > 1024
                    assert connection.execute("SELECT 1").fetchone() == (1,)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_server_soon_ends_sessions_of_a_lost_host() -> None:
    (port,) = free_ports(1)
    place = postgres.Server("listen_addresses=127.0.0.1", port=port)
    try:
        store = postgres.new_store(place).replace(f"host={place.folder}", "host=127.0.0.1")
        with closing(Database(store, "test")) as database, database.autocommit() as connection:
            names = ("tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count")
            found = [connection.execute("SELECT current_setting(%s)", (name,)).fetchone() for name in names]
    finally:
        place.remove()
    assert found == [("10",), ("5",), ("3",)]
