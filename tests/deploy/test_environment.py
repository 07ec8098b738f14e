"""Misspelt variables of the environment are noticed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.settings import _KNOWN, find_unknown_variables
from tests.deploy.system import FREE_PORTS, up
from yunishard.client import KEYS_VARIABLE
from yunishard.commands.rest import TOKEN_FILE


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("YUNISHARD_LOGLEVEL", "did you mean YUNISHARD_LOG_LEVEL?"),
        ("YUNISHARD_QUEUES_SAME_HIERARCHY", "did you mean YUNISHARD_SAME_HIERARCHY?"),
        ("YUNISHARD_GRPC_TLS_KEYS", "did you mean YUNISHARD_GRPC_TLS_KEY?"),
        ("YUNISHARD_COLOUR", "`yunishard up --help` lists the settings"),
    ],
)
def test_an_unknown_variable_is_named_with_the_nearest_known_one(name: str, advice: str) -> None:
    assert find_unknown_variables([name, "HOME", *_KNOWN]) == [
        f"{name} in the environment is unknown and ignored; {advice}"
    ]


def test_variables_that_kubernetes_sets_for_services_are_no_mistakes() -> None:
    names = ("SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_REST", "PORT", "PORT_9080_TCP", "PORT_9080_TCP_ADDR")
    assert find_unknown_variables([f"YUNISHARD{part}_{name}" for name in names for part in ("", "_REST")]) == []


@pytest.mark.parametrize("name", ["YUNISHARD_GRPC_PORT", "YUNISHARD_PORT", "YUNISHARD_REST_SERVICE_PORT"])
def test_a_name_that_kubernetes_could_have_set_is_a_mistake_where_it_has_set_none(name: str) -> None:
    assert [line.split()[0] for line in find_unknown_variables([name, "YUNISHARD_WEB_SERVICE_HOST"])] == [name]


def test_all_variables_of_clients_are_known() -> None:
    assert {KEYS_VARIABLE, TOKEN_FILE} <= set(_KNOWN)


@pytest.mark.processes
def test_a_command_warns_and_runs(tmp_path: Path) -> None:
    words = [sys.executable, "-P", "-c", "from yunishard.cli import main; raise SystemExit(main())", "settings"]
    done = subprocess.run(
        words,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "YUNISHARD_LOGLEVEL": "debug"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == (
        "yunishard settings: YUNISHARD_LOGLEVEL in the environment is unknown and ignored; "
        "did you mean YUNISHARD_LOG_LEVEL?\n"
    )
    assert "log-level" in done.stdout


@pytest.mark.processes
def test_the_system_warns_and_starts(tmp_path: Path) -> None:
    prefix = ("env", "YUNISHARD_LOGLEVEL=debug")
    with up("--ephemeral", *FREE_PORTS, folder=tmp_path, module="tests.deploy.fake_up", prefix=prefix) as system:
        (tmp_path / "wanted.json").write_text("{}")
        system.announced()
        assert system.says("WARNING supervisor core.supervisor: YUNISHARD_LOGLEVEL in the environment is unknown and ")
        assert system.stop() == 0
