"""Connections to PostgreSQL with TLS: the server's certificate is checked as the connection string asks."""

import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import psycopg
import pytest

from tests import postgres
from tests.deploy.certificates import self_signed
from tests.deploy.system import free_ports
from tests.machines import PARTITION
from tests.partition_worker.journal.hand import encoded
from tests.store.tls import TlsFront
from yunishard.partition_worker.journal.postgres_journal import PostgresJournals

SYSTEM: Final = max(Path("/usr/lib/postgresql").glob("*/bin"), default=Path("/nonexistent"))
"""The binaries of Debian's PostgreSQL, which have TLS."""


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The certificate of localhost, and its key."""
    return self_signed(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def front(certificate: tuple[Path, Path]) -> Iterator[TlsFront]:
    with closing(TlsFront(postgres.server(), *certificate)) as found:
        yield found


def append(store: str, *steps: int) -> None:
    with closing(PostgresJournals(store).open(PARTITION, 1)) as journal:
        journal.append(encoded(*steps), fresh=False)
        assert [step.number for step in journal.read_steps(1)] == [*steps]


def verifying(store: str, root: Path) -> str:
    return f"{store}&sslmode=verify-full&sslrootcert={root}"


def test_a_journal_is_kept_by_way_of_tls(front: TlsFront, certificate: tuple[Path, Path]) -> None:
    append(verifying(front.through(postgres.new_store()), certificate[0]), 1, 2, 3)


def test_a_server_that_cannot_prove_its_name_is_not_used(
    front: TlsFront, certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    store, other = postgres.new_store(), self_signed(tmp_path, "other")[0]
    for uri, problem in (
        (verifying(front.through(store, "db.example"), certificate[0]), "does not match host name"),
        (verifying(front.through(store), other), "certificate verify failed"),
    ):
        with pytest.raises(OSError, match=rf"the store cannot be used: .*{problem}") as raised:
            append(uri, 1)
        assert "\n" not in str(raised.value)


def test_a_client_proves_itself_with_a_certificate(certificate: tuple[Path, Path], tmp_path: Path) -> None:
    client, key = self_signed(tmp_path, "client")
    key.chmod(0o600)
    with closing(TlsFront(postgres.server(), *certificate, clients=client)) as front:
        uri = verifying(front.through(postgres.new_store()), certificate[0])
        with pytest.raises(OSError, match=r"the store cannot be used: .*certificate required"):
            append(uri, 1)
        append(f"{uri}&sslcert={client}&sslkey={key}", 1)


@pytest.mark.skipif(not (SYSTEM / "postgres").exists(), reason="no PostgreSQL with TLS is installed")
def test_a_server_with_a_certificate_of_its_own_encrypts_the_session(certificate: tuple[Path, Path]) -> None:
    folder = Path(postgres.run("mktemp", "--directory").strip())
    owner = folder.stat().st_uid
    own = [Path(shutil.copy(file, folder)) for file in certificate]
    for file in own:
        os.chown(file, owner, -1)
        file.chmod(0o600)
    (port,) = free_ports(1)
    settings = ("ssl=on", f"ssl_cert_file={own[0]}", f"ssl_key_file={own[1]}", "listen_addresses=127.0.0.1")
    place = postgres.Server(*settings, programs=SYSTEM, port=port)
    try:
        store = postgres.new_store(place).replace(f"host={place.folder}", "host=localhost&hostaddr=127.0.0.1")
        with pytest.raises(OSError, match="certificate verify failed"):
            append(verifying(store, self_signed(certificate[0].parent, "another")[0]), 1)
        append(verifying(store, certificate[0]), 1, 2, 3)
        with psycopg.connect(verifying(store, certificate[0])) as connection:
            query = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
            assert connection.execute(query).fetchone() == (True,)
    finally:
        place.remove()
        shutil.rmtree(folder)
