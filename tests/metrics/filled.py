"""A whole system with two resource managers, and its page of metrics once everything is on it that can be."""

import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.deploy.system import FREE_PORTS, Up, eventually, up
from yunishard.sdk.blocking import BlockingResourceManager
from yunishard.sdk.items import application, ask, node

QUEUES: Final = """
partitions:
  - name: default
    preemption: {enabled: true}
    queues:
      - name: root
        submitacl: "*"
        queues:
          - {name: batch, resources: {guaranteed: {vcore: 2}, max: {vcore: 8}}}
          - {name: leaving, maxapplications: 3}
"""
FEWER: Final = QUEUES.replace("          - {name: leaving, maxapplications: 3}\n", "")

PAGE: Final = "/ws/v1/metrics"


def page(system: dict[str, str], path: str = PAGE) -> str:
    with urllib.request.urlopen(system["rest"] + path, timeout=30) as answer:
        text: str = answer.read().decode()
        return text


@contextmanager
def filled(folder: Path) -> Iterator[tuple[Up, dict[str, str]]]:
    """Two resource managers with nodes, applications, what runs, what waits, and a queue that drains."""
    with up(*FREE_PORTS, folder=folder) as running:
        endpoints = running.announced()
        with (
            BlockingResourceManager(endpoints["native"], rm_id="rm-1", config=QUEUES) as one,
            BlockingResourceManager(endpoints["native"], rm_id="rm-2", config=QUEUES) as other,
        ):
            for rm in (one, other):
                _fill(rm)
            eventually(lambda: is_full(page(endpoints)))
            yield running, endpoints
        assert running.stop() == 0, running.errors


def _fill(rm: BlockingResourceManager) -> None:
    rm.update_nodes([node("n1", {"vcore": "4", "memory": "8Gi"}), node("n2", {"vcore": "4", "memory": "8Gi"})])
    rm.update_applications(new=[application(name, f"root.{name}", user="alice") for name in ("batch", "leaving")])
    rm.update_applications(new=[application("stray", "root.nowhere", user="alice")])  # is rejected
    asks = [ask(f"{name}-{number}", name, {"vcore": "1"}) for name in ("batch", "leaving") for number in range(6)]
    rm.update_allocations(allocations=asks)
    rm.update_configuration(FEWER)


def is_full(text: str) -> bool:
    """Whether what comes a little later is on the page: what the proxy and the supervisor tell, what was decided."""
    wanted = (
        'yunishard_rmproxy_window_messages{partition="rm-2_default"',
        'yunishard_process_up{process="supervisor"} 1',
        'yunishard_queue_draining_seconds{partition="rm-2_default",queue="root.leaving"}',
        'yunishard_waiting_asks{partition="rm-1_default",reason=',
        'yunishard_waiting_asks{partition="rm-2_default",reason=',
        'yunikorn_queue_app{partition="rm-2_default",queue="root.batch",state="running"} 1',
        'yunikorn_queue_app{partition="rm-1_default",queue="",state="rejected"} 1',
        'yunikorn_queue_app{partition="rm-2_default",queue="",state="rejected"} 1',
        'yunishard_rest_requests_total{method="GET",route="/ws/v1/metrics",status="200"}',
        'yunikorn_scheduler_application_total{partition="rm-2_default",state="running"}',
    )
    return all(one in text for one in wanted)
