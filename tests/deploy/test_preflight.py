"""What must hold before anything is started, tried on real files and ports."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.settings import SETTINGS, EffectiveSetting, Settings, SettingsError, read_settings
from common.token_keys import write_secret
from deploy import preflight
from deploy.preflight import prepare
from deploy.settings import resolve_settings

FREE = {"native": "tcp://127.0.0.1:0", "grpc": "127.0.0.1:0", "rest": "127.0.0.1:0"}


@pytest.fixture
def taken() -> Iterator[int]:
    """A port where someone listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def asked(**flags: str) -> Settings:
    return resolve_settings({**FREE, **({} if "state" in flags else {"ephemeral": "true"}), **flags}, {})


def refusal(settings: Settings) -> str:
    with pytest.raises(SettingsError) as refused, prepare(settings):
        pass
    line = str(refused.value)
    assert "\n" not in line
    return line


@pytest.mark.parametrize(("option", "scheme"), [("native", "tcp://"), ("grpc", ""), ("rest", "")])
def test_a_port_in_use_is_refused(taken: int, option: str, scheme: str) -> None:
    address = f"{scheme}127.0.0.1:{taken}"
    assert refusal(asked(**{option: address})) == (
        f"--{option}: {address}: address already in use; stop what listens there, "
        f"or choose another port (--{option} {scheme}127.0.0.1:0 takes any free one)"
    )


def test_two_options_with_the_same_port_are_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    line = refusal(asked(grpc=f"127.0.0.1:{port}", rest=f"127.0.0.1:{port}"))
    assert line == f"--rest: 127.0.0.1:{port}: --grpc has the same; give each its own"


def test_an_address_of_another_machine_is_refused() -> None:
    assert "give an address of this machine" in refusal(asked(rest="192.0.2.1:0", insecure="true"))


def test_a_host_that_does_not_exist_is_refused() -> None:
    assert "give an address of this machine" in refusal(asked(rest="no.such.host.invalid:0"))


def test_ports_are_free_again_after_the_check() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with prepare(asked(rest=f"127.0.0.1:{port}")), socket.create_server(("127.0.0.1", port)):
        pass


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "cannot be read: no such file or directory"),
        (b"\xff\xfe", "cannot be read: not UTF-8 text (byte 0)"),
        (b"partitions: {", ""),
        (b"partitions:\n  - name: default\n    queues:\n      - name: root\n        shape: round\n", "line 5"),
        (
            b"partitions:\n  - placementrules:\n      - name: fixd\n    queues:\n      - name: a\n",
            "unknown rule name specified fixd",
        ),
    ],
)
def test_a_configuration_that_cannot_be_used_is_refused(tmp_path: Path, content: bytes | None, reason: str) -> None:
    file = tmp_path / "queues.yaml"
    if content is not None:
        file.write_bytes(content)
    line = refusal(asked(config=str(file)))
    assert line.startswith(f"--config: {file}: ")
    assert reason in line


def test_a_queue_that_moves_between_partitions_is_refused_only_if_that_is_enforced(tmp_path: Path) -> None:
    file = tmp_path / "queues.yaml"
    file.write_text(
        "partitions:\n"
        "  - {name: one, queues: [{name: a, queues: [{name: x}]}, {name: b}]}\n"
        "  - {name: two, queues: [{name: a}, {name: b, queues: [{name: x}]}]}\n"
    )
    with prepare(asked(config=str(file))):
        pass
    assert "queue x is below root.b" in refusal(asked(config=str(file), **{"queues.same-hierarchy": "enforce"}))


def test_the_processes_get_the_settings_in_a_file() -> None:
    settings = asked(**{"scheduler-admins": "ann"})
    with prepare(settings) as resources:
        found = read_settings(resources.file)
        assert found == resources.settings
        assert [one.name for one in found.effective] == list(SETTINGS)
        assert (
            EffectiveSetting("scheduler-admins", "ann", "--scheduler-admins", "--scheduler-admins") in found.effective
        )
        assert found.state == resources.file.parent.parent


def test_a_port_that_other_machines_can_reach_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    assert "is not secured" in refusal(asked(grpc="0.0.0.0:0", state=str(tmp_path / "state")))
    assert not (tmp_path / "state").exists()


def test_a_plug_in_that_is_not_installed_is_refused() -> None:
    assert refusal(asked(predicates="racks")) == "--predicates: no plug-in 'racks' is installed; there are: none"


def test_a_web_root_that_is_no_directory_is_refused(tmp_path: Path) -> None:
    with prepare(asked(**{"web-root": str(tmp_path)})):
        pass
    missing = tmp_path / "none"
    assert refusal(asked(**{"web-root": str(missing)})).startswith(f"--web-root: {missing}: is no directory; ")


def test_keys_of_tokens_are_tried_before_anything_is_made(tmp_path: Path) -> None:
    file, state = tmp_path / "keys", tmp_path / "state"

    def line() -> str:
        return refusal(asked(**{"auth": "token", "auth-keys": str(file), "state": str(state)}))

    assert line().startswith(f"--auth-keys: {file}: cannot be read: no such file or directory; `yunishard token --new")
    file.write_text("{}")
    assert "no JWKS" in line()
    file.unlink()
    write_secret(file)
    file.chmod(0o644)
    assert "others may read" in line()
    assert not state.exists()
    file.chmod(0o600)
    with prepare(asked(**{"auth": "token", "auth-keys": str(file), "state": str(state)})):
        pass


def test_more_partitions_than_there_are_descriptors_for_are_refused(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(preflight, "raise_descriptor_limit", lambda: 1024)
    problem = (
        "--partitions-max: 500 partitions may need 1756 file descriptors in one process, and the hard limit is 1024; "
        "raise it (`ulimit -Hn`, LimitNOFILE= of a systemd unit, `--ulimit nofile=` of a container), or choose at most "
        "256 partitions"
    )
    assert refusal(asked(**{"partitions-max": "500"})) == problem
    with prepare(asked()):
        assert caplog.messages == [problem]  # the default is more than most systems use
    with prepare(asked(**{"partitions-max": "256"})):
        pass
    assert "or choose at most 246 partitions" in refusal(asked(**{"partitions-max": "500", "spare-workers": "10"}))
    monkeypatch.setattr(preflight, "raise_descriptor_limit", lambda: 200)
    assert refusal(asked(**{"partitions-max": "1"})).endswith("`--ulimit nofile=` of a container)")
