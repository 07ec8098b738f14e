"""What a resource manager knows itself is in the state dump of the whole system."""

import json
import urllib.request

import pytest

from tests.processes.system import System
from yunishard.sdk.blocking import BlockingResourceManager

pytestmark = pytest.mark.processes


def diagnostics(system: System) -> object:
    with urllib.request.urlopen(f"http://{system.rest}/debug/fullstatedump", timeout=30) as answer:
        return json.load(answer)["rmDiagnostics"]


def test_a_resource_manager_with_something_to_say_is_asked(system: System) -> None:
    found = '{"pods": {"running": 3}}'
    with (
        system.unharmed(leaving=True),
        BlockingResourceManager(system.native, rm_id="talks", state_dump=lambda: found),
    ):
        assert diagnostics(system) == json.loads(found)


def test_one_without_is_not(system: System) -> None:
    with system.unharmed(leaving=True), BlockingResourceManager(system.native, rm_id="silent"):
        assert diagnostics(system) == {"empty": "Resource Manager did not register callback"}
