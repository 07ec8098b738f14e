"""The driver with a machine that decides what the test wants, the fake API server, and a core of the test."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, cast

import pytest

from tests.kubernetes_shim.fake_api import FakeApi, make_pod, serve_fake_api
from yunishard.kubernetes_shim import client as client_module
from yunishard.kubernetes_shim import driver as driver_module
from yunishard.kubernetes_shim.actions import (
    Action,
    BindPod,
    CreatePod,
    DeletePod,
    EmitEvent,
    Failure,
    LogProblem,
    PatchPodStatus,
    PatchVolume,
    SendAllocations,
    SendApplications,
    SendConfiguration,
    SendNodes,
    SendReport,
)
from yunishard.kubernetes_shim.client import KubernetesClient, find_cause
from yunishard.kubernetes_shim.driver import CLUSTER_KINDS, Driver
from yunishard.kubernetes_shim.events import EventSender
from yunishard.kubernetes_shim.objects import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from yunishard.kubernetes_shim.settings import Settings
from yunishard.kubernetes_shim.shim import Shim
from yunishard.sdk.exceptions import ConnectFailed, RegistrationRefused, ResyncFailed, SessionLost
from yunishard.sdk.items import NodeAction, Result, ask, node, release


class FakeMachine:
    """Records what it gets; returns the actions that a test puts into `actions`."""

    def __init__(self) -> None:
        self.log: list[tuple[Any, ...]] = []
        self.actions: list[Action] = []
        self.next_deadline = float("inf")

    def take_actions(self) -> list[Action]:
        taken, self.actions = self.actions, []
        return taken

    def handle_object(self, event: str, obj: Any, now: float) -> None:
        self.log.append((event, type(obj).__name__, obj.metadata.name))

    def handle_listed(self, now: float) -> None:
        self.log.append(("listed",))

    def handle_registered(self, now: float) -> None:
        self.log.append(("registered",))

    def handle_result(self, partition: str, news: Any, now: float) -> None:
        self.log.append(("result", partition, news))

    def handle_outcome(self, action: Action, failure: Failure | None, now: float) -> None:
        self.log.append(("outcome", type(action).__name__, failure))

    def advance(self, now: float) -> None:
        assert now >= self.next_deadline
        self.next_deadline = float("inf")
        self.log.append(("advanced",))

    def may_run(self, key: str, node: str, allocate: bool) -> str | None:
        return f"after {len(self.log)} calls"

    def fits_without(self, key: str, node: str, victims: Any, start: int) -> int | str:
        return len(self.log)

    def count_pods(self) -> dict[str, int]:
        return {"Bound": 3}

    def dump_state(self) -> str:
        return "{}"


class FakeCore:
    """Sessions of a core: records what is sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Any]] = []
        self.registrations: list[dict[str, Any]] = []
        self.refusals: list[Exception] = []
        self.report_refusal: Exception | None = None
        self.news: asyncio.Queue[Result | Exception] = asyncio.Queue()
        self.room = asyncio.Event()
        self.room.set()

    async def connect(self, address: str, **arguments: Any) -> "FakeCore":
        self.registrations.append(arguments)
        if self.refusals:
            raise self.refusals.pop(0)
        return self

    async def results(self) -> AsyncIterator[Result]:
        while True:
            found = await self.news.get()
            if isinstance(found, Exception):
                raise found
            yield found

    def next_arrived(self) -> Result | None:
        found = None if self.news.empty() else self.news.get_nowait()
        if isinstance(found, Exception):
            raise found
        return found

    async def _send(self, name: str, what: Any) -> None:
        await self.room.wait()
        self.sent.append((name, what))

    async def update_nodes(self, nodes: Any) -> None:
        await self._send("nodes", [one.node_id for one in nodes])

    async def update_applications(self, *, new: Any = (), remove: Any = ()) -> None:
        await self._send("applications", len(new))

    async def update_allocations(self, *, allocations: Any = (), releases: Any = ()) -> None:
        await self._send("allocations", [one.allocation_key for one in (*allocations, *releases)])

    async def update_configuration(self, text: str, *, extra_config: Any = None) -> None:
        await self._send("configuration", text)

    @asynccontextmanager
    async def resync(self, *, reason: str) -> AsyncIterator[None]:
        self.sent.append(("report", reason))
        yield
        self.sent.append(("end", reason))
        if self.report_refusal is not None:
            raise self.report_refusal

    async def close(self) -> None:
        self.sent.append(("close", None))


class World:
    def __init__(self, api: FakeApi, core: FakeCore, machine: FakeMachine, driver: Driver) -> None:
        self.api, self.core, self.machine, self.driver = api, core, machine, driver

    def act(self, *actions: Action) -> None:
        """Let the machine decide something, as if because of a result."""
        self.machine.actions += actions
        self.core.news.put_nowait(Result("default", "wake"))  # type: ignore[arg-type]

    async def until(self, holds: Callable[[], object]) -> None:
        while not holds():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.001)

    def outcomes(self) -> list[tuple[Any, ...]]:
        return [entry[1:] for entry in self.machine.log if entry[0] == "outcome"]


Test = Callable[[World], Awaitable[None]]


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> FakeCore:
    core = FakeCore()
    monkeypatch.setattr(driver_module, "connect", core.connect)
    monkeypatch.setattr(driver_module, "RECONNECT_S", 0.001)
    monkeypatch.setattr(driver_module, "REFUSED_S", (0.001,))
    monkeypatch.setattr(client_module, "FIRST_PAUSE_S", 0.001)
    return core


def run(core: FakeCore, test: Test) -> None:
    async def main() -> None:
        machine = FakeMachine()
        async with serve_fake_api() as api, KubernetesClient(api.access) as client, asyncio.timeout(20):
            for name in ("p1", "p2"):
                api.put(
                    "api/v1/pods", {**make_pod(name), "metadata": {"name": name, "namespace": "default", "uid": name}}
                )
            api.put("api/v1/nodes", {"metadata": {"name": "n1"}})
            settings = Settings(configuration="first", cluster_id="cluster")
            events = EventSender(client, "host")
            driver = Driver(
                cast(Shim, machine), client, events, address="tcp://core", settings=settings, namespace="default"
            )
            task = asyncio.create_task(driver.run())
            world = World(api, core, machine, driver)
            try:
                await world.until(lambda: ("listed",) in machine.log or task.done())
                await asyncio.wait([task, checked := asyncio.create_task(test(world))], return_when="FIRST_COMPLETED")
                if checked.done():
                    await checked
                else:
                    checked.cancel()
                    await task
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())


def test_all_objects_reach_the_machine_before_the_lists_count_as_complete(core: FakeCore) -> None:
    async def test(world: World) -> None:
        log = world.machine.log
        before = log[: log.index(("listed",))]
        assert {("added", "Pod", "p1"), ("added", "Pod", "p2"), ("added", "Node", "n1")} <= set(before)
        lists = [request for request in world.api.requests if "limit=" in request]
        assert len(lists) == len(CLUSTER_KINDS) + 2
        assert any("status.phase%21%3DSucceeded" in request for request in lists)
        world.api.put("api/v1/nodes", {"metadata": {"name": "n2"}})
        await world.until(lambda: ("added", "Node", "n2") in log)

    run(core, test)


def test_messages_to_the_core_keep_their_order(core: FakeCore) -> None:
    async def test(world: World) -> None:
        world.act(
            SendNodes([node("n1", action=NodeAction.CREATE)]),
            SendApplications(),
            SendAllocations([ask("k1", "app", {})], [release("app", "k2")]),
            SendConfiguration("second"),
        )
        await world.until(world.outcomes)
        expected = [("nodes", ["n1"]), ("applications", 0), ("allocations", ["k1", "k2"]), ("configuration", "second")]
        assert core.sent == expected
        assert world.outcomes() == [("SendConfiguration", None)]

    run(core, test)


def test_a_report_replaces_what_was_not_sent_except_for_configurations(core: FakeCore) -> None:
    async def test(world: World) -> None:
        core.room.clear()
        world.act(SendNodes([node("n1", action=NodeAction.CREATE)]))
        await world.until(lambda: ("registered",) in world.machine.log)
        world.act(
            SendNodes([node("lost", action=NodeAction.CREATE)]),
            SendConfiguration("second"),
            SendReport("it restarted", [node("n1", action=NodeAction.CREATE_DRAIN)], [], [ask("k1", "app", {})]),
            SendNodes([node("n2", action=NodeAction.CREATE)]),
        )
        core.room.set()
        await world.until(lambda: ("nodes", ["n2"]) in core.sent)
        assert ("nodes", ["lost"]) not in core.sent
        report = core.sent[core.sent.index(("report", "it restarted")) :]
        assert report == [
            ("report", "it restarted"),
            ("nodes", ["n1"]),
            ("applications", 0),
            ("allocations", ["k1"]),
            ("end", "it restarted"),
            ("nodes", ["n2"]),
        ]
        assert world.outcomes() == [("SendConfiguration", None), ("SendReport", None)]

    run(core, test)


def test_a_refused_report_is_an_outcome(core: FakeCore) -> None:
    core.report_refusal = ResyncFailed("three nodes too many")

    async def test(world: World) -> None:
        world.act(SendReport("start"))
        await world.until(world.outcomes)
        assert world.outcomes() == [("SendReport", Failure(message="three nodes too many"))]

    run(core, test)


def test_writes_to_one_object_are_in_order_and_a_slow_one_delays_no_other(core: FakeCore) -> None:
    async def test(world: World) -> None:
        blocked = asyncio.Event()
        handle = world.api._respond

        async def respond(request: Any, place: Any) -> Any:
            if place.name == "p1" and place.subresource == "status":
                await blocked.wait()
            return await handle(request, place)

        world.api._respond = respond  # type: ignore[method-assign]
        world.act(
            PatchPodStatus(namespace="default", name="p1", uid="p1", status={"reason": "x"}),
            BindPod(namespace="default", name="p1", uid="p1", node="n1"),
            BindPod(namespace="default", name="p2", uid="p2", node="n1"),
        )
        await world.until(world.outcomes)
        pods = world.api.objects["api/v1/pods"]
        assert world.outcomes() == [("BindPod", None)]
        assert "nodeName" in pods["default", "p2"]["spec"]
        assert "nodeName" not in pods["default", "p1"]["spec"]
        blocked.set()
        await world.until(lambda: len(world.outcomes()) == 3)
        assert pods["default", "p1"]["spec"]["nodeName"] == "n1"
        assert not world.driver._writes._of_object

    run(core, test)


def test_pods_do_not_wait_for_the_placeholders_of_a_gang(core: FakeCore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_module, "CONCURRENT_WRITES", 1)

    async def test(world: World) -> None:
        bodies = [{"metadata": {"name": name, "namespace": "default"}} for name in ("g1", "g2")]
        world.act(
            *(CreatePod(namespace="default", name="g", body=body, application_id="a") for body in bodies),
            DeletePod(namespace="default", name="p1", uid="p1"),
            BindPod(namespace="default", name="p2", uid="p2", node="n1"),
        )
        await world.until(lambda: len(world.outcomes()) == 4)
        assert [name for name, _ in world.outcomes()] == ["BindPod", "DeletePod", "CreatePod", "CreatePod"]

    run(core, test)


def test_every_kind_of_write_is_executed_and_refusals_are_outcomes(core: FakeCore) -> None:
    async def test(world: World) -> None:
        world.api.put("api/v1/persistentvolumes", {"metadata": {"name": "v"}})
        world.api.put("api/v1/persistentvolumeclaims", {"metadata": {"name": "c", "namespace": "default"}})
        annotated: dict[str, object] = {"metadata": {"annotations": {"k": "v"}}}
        world.act(
            CreatePod(namespace="default", name="p3", body=make_pod("p3"), application_id="app"),
            DeletePod(namespace="default", name="p1", uid="p1"),
            PatchVolume(kind=PERSISTENT_VOLUMES, namespace="", name="v", body=annotated, uid="p2"),
            PatchVolume(kind=PERSISTENT_VOLUME_CLAIMS, namespace="default", name="c", body=annotated, uid="p2"),
            BindPod(namespace="default", name="gone", uid="x", node="n1"),
            EmitEvent(kind="Pod", namespace="default", name="p2", uid="p2", reason="R", action="A", note="N"),
        )
        await world.until(lambda: len(world.outcomes()) == 5 and "apis/events.k8s.io/v1/events" in world.api.objects)
        assert set(world.api.objects["api/v1/pods"]) == {("default", "p2"), ("default", "p3")}
        assert world.api.objects["api/v1/persistentvolumes"]["", "v"]["metadata"]["annotations"] == {"k": "v"}
        failures = [failure for name, failure in world.outcomes() if failure is not None]
        assert failures == [Failure(404, "NotFound")]

    run(core, test)


def test_a_condition_has_the_time_at_which_it_entered_its_status(core: FakeCore) -> None:
    async def test(world: World) -> None:
        def patch(reason: str, *, is_transition: bool) -> PatchPodStatus:
            condition = {"type": "PodScheduled", "status": "False", "reason": reason}
            return PatchPodStatus(
                namespace="default", name="p1", uid="p1", condition=condition, is_transition=is_transition
            )

        bodies: list[Any] = []

        async def record(_kind: Any, _namespace: str, _name: str, body: Any, **_more: Any) -> None:
            bodies.append(body)

        world.driver._client.patch = record  # type: ignore[assignment, method-assign]
        world.act(patch("Unschedulable", is_transition=True), patch("SchedulingSkipped", is_transition=False))
        await world.until(lambda: len(world.outcomes()) == 2)
        (first,), (second,) = (one["status"]["conditions"] for one in bodies)
        assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", first["lastTransitionTime"])
        assert second == {"type": "PodScheduled", "status": "False", "reason": "SchedulingSkipped"}
        assert {one["metadata"]["uid"] for one in bodies} == {"p1"}

    run(core, test)


def test_levels_of_loggers_follow_the_settings(core: FakeCore) -> None:
    async def test(world: World) -> None:
        for extra, expected in (
            ({"log.level": "WARN", "log.shim.driver.level": "DEBUG"}, [logging.WARNING, logging.DEBUG]),
            ({"log.kubernetes.level": "ERROR"}, [logging.NOTSET, logging.NOTSET]),
            ({}, [logging.NOTSET, logging.NOTSET]),
        ):
            world.act(SendConfiguration("text", extra))
            await world.until(lambda: world.core.sent[-1:] == [("configuration", "text")])
            world.core.sent.clear()
            levels = [logging.getLogger(name).level for name in ("shim", "shim.driver")]
            assert levels == expected
            has_own = logging.getLogger("kubernetes").level != logging.NOTSET
            assert has_own == bool(extra)

    run(core, test)


def test_the_machine_advances_at_its_deadline(core: FakeCore) -> None:
    async def test(world: World) -> None:
        world.machine.next_deadline = asyncio.get_running_loop().time() + 0.05
        world.act()
        await world.until(lambda: ("advanced",) in world.machine.log)

    run(core, test)


def test_problems_are_logged(core: FakeCore, caplog: pytest.LogCaptureFixture) -> None:
    async def test(world: World) -> None:
        world.act(LogProblem("key x: expected y"))
        await world.until(lambda: "key x: expected y" in caplog.messages)

    run(core, test)


def test_a_session_that_the_core_dropped_is_followed_by_another_one_with_the_latest_configuration(
    core: FakeCore,
) -> None:
    core.refusals = [ConnectFailed("nothing answers")]

    async def test(world: World) -> None:
        world.act(SendConfiguration("second", {"key": "value"}))
        await world.until(world.outcomes)
        core.refusals = [ConnectFailed("nothing answers")]
        core.news.put_nowait(SessionLost("its state is gone"))
        await world.until(lambda: world.machine.log.count(("registered",)) == 2)
        assert [one["config"] for one in core.registrations] == ["first", "first", "second", "second"]
        assert core.registrations[-1]["extra_config"] == {"key": "value"}
        assert core.registrations[-1]["rm_id"] == "cluster"
        assert ("close", None) in core.sent

    run(core, test)


def test_the_core_gets_the_build_under_the_keys_of_yunikorn_and_the_state_on_demand(core: FakeCore) -> None:
    async def test(world: World) -> None:
        await world.until(lambda: core.registrations)
        build = core.registrations[0]["build_info"]
        keys = "buildVersion buildDate isPluginVersion goVersion arch coreSHA siSHA shimSHA"
        assert set(build) == set(keys.split())
        assert build["isPluginVersion"] == "false"
        assert datetime.fromisoformat(build["buildDate"])
        assert await core.registrations[0]["state_dump"]() == "{}"

    run(core, test)


def test_what_the_core_refuses_is_logged_once_with_its_place(core: FakeCore, caplog: pytest.LogCaptureFixture) -> None:
    core.refusals = [RegistrationRefused("line 1: no"), RegistrationRefused("line 1: no"), ConnectFailed("gone")]

    async def test(world: World) -> None:
        await world.until(lambda: ("registered",) in world.machine.log)
        assert [one.message.partition("; trying again")[0] for one in caplog.records] == [
            "the core refuses resource manager cluster or queues.yaml of namespace default: line 1: no",
            "gone",
        ]

    run(core, test)


def test_a_refused_configuration_is_sent_again_when_it_changes(core: FakeCore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_module, "REFUSED_S", (1e9,))
    core.refusals = [RegistrationRefused("line 1: no")]

    async def test(world: World) -> None:
        await world.until(lambda: core.registrations)
        world.driver._configuration = "partitions: []"
        world.driver._reconfigured.set()
        await world.until(lambda: ("registered",) in world.machine.log)
        assert [one["config"] for one in core.registrations] == ["first", "partitions: []"]

    run(core, test)


def test_a_session_that_another_process_took_ends_the_driver(core: FakeCore) -> None:
    async def test(world: World) -> None:
        lost = SessionLost("another process registered")
        lost.code = "superseded"
        core.news.put_nowait(lost)
        await asyncio.sleep(10)

    with pytest.raises(ExceptionGroup) as caught:
        run(core, test)
    assert str(find_cause(caught.value)).startswith("another process has registered as resource manager cluster with")


def test_a_defect_of_the_machine_ends_the_driver(core: FakeCore) -> None:
    async def test(world: World) -> None:
        def fail(*_: object) -> None:
            raise KeyError("impossible")

        world.machine.handle_result = fail  # type: ignore[method-assign]
        world.act()
        await asyncio.sleep(10)

    with pytest.raises(ExceptionGroup) as caught:
        run(core, test)
    assert isinstance(find_cause(caught.value), KeyError)


def test_results_that_arrived_before_a_question_count_for_its_answer(core: FakeCore) -> None:
    async def test(world: World) -> None:
        await world.until(lambda: core.registrations and ("registered",) in world.machine.log)
        await asyncio.sleep(0)
        may_run, fits = core.registrations[0]["predicate"], core.registrations[0]["preemption_predicate"]
        before = len(world.machine.log)
        world.act()
        world.act()
        assert may_run("k", "n", True) == f"after {before + 2} calls"
        world.act()
        assert fits("k", "n", [], 0) == before + 3

    run(core, test)


def test_a_defect_of_the_machine_while_it_answers_ends_the_driver(core: FakeCore) -> None:
    async def test(world: World) -> None:
        def fail(*_: object) -> None:
            raise KeyError("impossible")

        await world.until(lambda: ("registered",) in world.machine.log)
        await asyncio.sleep(0.01)
        world.machine.handle_result = fail  # type: ignore[method-assign]
        world.act()
        with pytest.raises(KeyError):
            core.registrations[0]["predicate"]("k", "n", True)
        await asyncio.sleep(10)

    with pytest.raises(ExceptionGroup) as caught:
        run(core, test)
    assert isinstance(find_cause(caught.value), KeyError)
