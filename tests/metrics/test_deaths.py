"""Of a process that is not there only that it is not there is told, and the page comes all the same."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.deploy.system import FREE_PORTS, Up, eventually, up
from tests.metrics.filled import QUEUES, page
from tests.metrics.series import read
from yunishard.sdk.blocking import BlockingResourceManager

pytestmark = pytest.mark.processes

PAGE_MAX_S = 4.0
PATIENT = ("--silence", "60s", "--lease-timeout", "60s")
"""Nobody is replaced while a test looks on."""


@contextmanager
def running(folder: Path) -> Iterator[tuple[Up, dict[str, str]]]:
    with up(*FREE_PORTS, *PATIENT, folder=folder) as system:
        endpoints = system.announced()
        with BlockingResourceManager(endpoints["native"], rm_id="rm-1", config=QUEUES):
            eventually(lambda: processes(endpoints).get("rmproxy") == 1)
            yield system, endpoints


def processes(endpoints: dict[str, str]) -> dict[str, float]:
    """Which are there, by name."""
    families = read(page(endpoints))
    return {labels["process"]: value for _, labels, value in families["yunishard_process_up"].series}


@contextmanager
def stopped(system: Up, words: str) -> Iterator[None]:
    number = system.child(words)
    os.kill(number, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(number, signal.SIGCONT)


def test_a_worker_that_hangs_leaves_nothing_but_that_it_is_not_there(tmp_path: Path) -> None:
    with running(tmp_path) as (system, endpoints):
        assert 'partition="rm-1_default",process="partition_worker"} 1' in page(endpoints)
        with stopped(system, " partition_worker "):
            began = time.monotonic()
            text = page(endpoints)
            assert time.monotonic() - began < PAGE_MAX_S
        left = [line for line in text.splitlines() if "partition_worker" in line or 'partition="rm-1_default"' in line]
        assert [line for line in left if "rmproxy" not in line and "yunishard_supervisor" not in line] == [
            'yunishard_partition_up{partition="rm-1_default",rm="rm-1"} 0',
            'yunishard_process_up{partition="rm-1_default",process="partition_worker"} 0',
        ]
        assert "yunikorn_queue_app" not in text
        eventually(lambda: processes(endpoints)["partition_worker"] == 1)


def test_while_the_broker_hangs_the_page_has_what_the_web_service_tells(tmp_path: Path) -> None:
    with running(tmp_path) as (system, endpoints):
        with stopped(system, "-m broker"):
            began = time.monotonic()
            text = page(endpoints)
            assert time.monotonic() - began < PAGE_MAX_S
        told = read(text)["yunishard_process_up"].series
        assert {labels["process"]: value for _, labels, value in told} == {"webservice": 1, "broker": 0}


def test_a_proxy_that_died_is_there_again_under_another_time_and_with_new_counts(tmp_path: Path) -> None:
    def started(endpoints: dict[str, str]) -> list[float]:
        families = read(page(endpoints))
        series = families["yunishard_process_start_time_seconds"].series
        return [value for _, labels, value in series if labels["process"] == "rmproxy"]

    with running(tmp_path) as (system, endpoints):
        before = started(endpoints)
        os.kill(system.child("-m rmproxy"), signal.SIGKILL)
        eventually(lambda: started(endpoints) not in (before, []))
        restarts = read(page(endpoints))["yunishard_supervisor_restarts_total"].series
        eventually(lambda: 'yunishard_supervisor_restarts_total{cause="ended",role="rmproxy"} 1' in page(endpoints))
        assert len(restarts) == 16
