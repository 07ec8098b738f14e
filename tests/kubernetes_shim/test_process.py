"""What an operator reads when a process of Kubernetes cannot run, and its exit code."""

import argparse
import asyncio
from collections.abc import Coroutine
from typing import Any, ClassVar, cast

import pytest

from yunishard.cli.main import NOT_DONE, UNUSABLE, CommandFailed
from yunishard.kubernetes_shim import process
from yunishard.kubernetes_shim.client import KubernetesError
from yunishard.kubernetes_shim.command import add_k8s_shim_arguments
from yunishard.kubernetes_shim.kubeconfig import AccessError
from yunishard.kubernetes_shim.lease import LeaseLost
from yunishard.kubernetes_shim.metrics import ListenFailed
from yunishard.kubernetes_shim.process import (
    describe_refusal,
    list_ineffective_keys,
    read_first_settings,
    report_loop_error,
    run_until_signal,
)
from yunishard.kubernetes_shim.settings import SettingsError
from yunishard.sdk.exceptions import SessionLost


@pytest.fixture(autouse=True)
def keep_logging(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "configure_logging", lambda *_: None)


ARGS = argparse.Namespace(log_level="info", log_format="text")
URL = "GET https://api:6443/api/v1/pods"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (KubernetesError(401, "Unauthorized", "Unauthorized", URL), f"{URL}: the API server refuses the credentials"),
        (
            KubernetesError(403, "Forbidden", "pods is forbidden", URL),
            "a right is missing: pods is forbidden; the",
        ),
        (KubernetesError(404, "", "404 page not found", URL), f"{URL}: 404: 404 page not found"),
        (KubernetesError(410, "Expired", "too old"), "410 Expired: too old"),
    ],
)
def test_a_refusal_names_the_request_or_the_right(error: KubernetesError, expected: str) -> None:
    assert describe_refusal(error).startswith(expected)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (LeaseLost("b has the lease"), NOT_DONE),
        (SessionLost("another process registered"), NOT_DONE),
        (AccessError("no kubeconfig"), UNUSABLE),
        (ListenFailed("port in use"), UNUSABLE),
        (KubernetesError(403, "Forbidden", "pods is forbidden"), UNUSABLE),
    ],
)
def test_the_first_error_of_the_tasks_is_reported_with_its_exit_code(error: Exception, status: int) -> None:
    async def serve() -> None:
        raise ExceptionGroup("tasks", [ExceptionGroup("more", [error])])

    with pytest.raises(CommandFailed) as caught:
        run(serve())
    assert caught.value.status == status
    assert "tasks" not in str(caught.value)


def test_a_defect_stays_an_exception() -> None:
    async def serve() -> None:
        raise ExceptionGroup("tasks", [KeyError("x")])

    with pytest.raises(ExceptionGroup):
        run(serve())


def run(serve: Coroutine[None, None, None]) -> None:
    run_until_signal("test", ARGS, serve)


def test_settings_that_cannot_be_read_are_listed_with_their_config_maps() -> None:
    expected = (
        "the config maps yunikorn-defaults and yunikorn-configs of namespace ours have settings that cannot be read:\n"
        "  service.clusterId is '': expected 1 to 64 letters, digits and -_.:, such as mycluster\n"
        "  kubernetes.qps is '0': expected a whole number from 1 to 999999999"
    )
    with pytest.raises(SettingsError) as caught:
        read_first_settings([{"kubernetes.qps": "0"}, {"service.clusterId": ""}], "ours")
    assert str(caught.value) == expected


@pytest.mark.parametrize(("is_closing", "expected"), [(True, []), (False, ["closed by whom"])])
def test_a_connection_that_is_closed_in_its_handshake_is_no_error(is_closing: bool, expected: list[str]) -> None:
    class Transport(asyncio.Transport):
        def is_closing(self) -> bool:
            return is_closing

    class Loop:
        reported: ClassVar[list[str]] = []

        def default_exception_handler(self, context: dict[str, Any]) -> None:
            self.reported.append(str(context["message"]))

    Loop.reported.clear()
    context = {
        "message": "closed by whom",
        "exception": RuntimeError("it is closed"),
        "transport": Transport(),
    }
    report_loop_error(cast(asyncio.AbstractEventLoop, Loop()), context)
    assert Loop.reported == expected


def test_keys_without_effect_are_named_with_the_setting_that_was_probably_meant() -> None:
    data = dict.fromkeys(("queue.yaml", "queues.yaml", "servic.clusterId", "log.level", "a"), "") | {
        "event.maxStreams": "many",
        "event.trackingEnabled": "true",
        "event.unknown": "1",
        "log.core.level": "-1",
        "log.shim.level": "debgu",
    }
    assert list_ineffective_keys(data, "queues") == [
        "a is not a setting, so it has no effect",
        "event.maxStreams is 'many', which cannot be read, so it has no effect",
        "event.unknown is not a setting, so it has no effect",
        "log.shim.level is 'debgu', which cannot be read, so it has no effect: did you mean 'debug'?",
        "queue.yaml is not read: the queues are in queues.yaml (service.policyGroup)",
        "servic.clusterId is not a setting, so it has no effect: did you mean 'service.clusterId'?",
    ]


def test_keys_without_effect_are_logged_at_the_start(caplog: pytest.LogCaptureFixture) -> None:
    read_first_settings([{"kubernetes.qbs": "5"}, {"kubernetes.qps": "5"}], "ours")
    expected = "kubernetes.qbs is not a setting, so it has no effect: did you mean 'kubernetes.qps'?"
    assert caplog.messages == [f"in the config maps of namespace ours: {expected}"]


def test_an_identity_that_is_empty_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    add_k8s_shim_arguments(parser)
    assert parser.parse_args([]).identity is None
    assert parser.parse_args(["--identity", "pod-1_uid"]).identity == "pod-1_uid"
    with pytest.raises(SystemExit):
        parser.parse_args(["--identity="])
    assert "expected the identity of this process" in capsys.readouterr().err
