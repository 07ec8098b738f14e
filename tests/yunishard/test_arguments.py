"""A wrong argument is refused where it is passed, in a message that names the function and the argument."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any, cast  # what is passed here is wrong on purpose

import pytest

from tests.yunishard.fake_core import FakeCore, play
from yunishard.common.messages.rm_messages import (
    NODE_DRAIN,
    STOPPED_BY_RM,
    TIMEOUT,
    AddApplicationRequest,
    Allocation,
    AllocationRelease,
    AllocationReleasesRequest,
    AllocationRequest,
    NodeInfo,
    UserGroupInformation,
)
from yunishard.common.resources import QuantityError
from yunishard.sdk.blocking import BlockingResourceManager
from yunishard.sdk.client import ResourceManager
from yunishard.sdk.items import Callbacks, amounts, application, ask, check_command, node, release

build: dict[str, Callable[..., Any]] = {
    "node": node,
    "application": application,
    "ask": ask,
    "release": release,
    "amounts": amounts,
    "Callbacks": Callbacks,
}

WRONG: list[tuple[str, tuple[object, ...], dict[str, object], str]] = [
    (
        "node",
        ("n", {"vcore": 1.5}),
        {},
        "node(): resources['vcore'] must be int | str, got 1.5 (float)",
    ),
    ("node", ("n", {"vcore": True}), {}, "got True (bool)"),
    ("node", ("n", {"vcore": None}), {}, "node(): resources['vcore'] must be"),
    ("node", ("n", {"vcore": 2**63}), {}, "from -9223372036854775808 to 9223372036854775807, got 9223372036854775808"),
    ("node", ("n", {7: 1}), {}, "node(): resources[7] must be str, got 7 (int)"),
    (
        "node",
        ("n", [("vcore", 1)]),
        {},
        "node(): resources must be Mapping[str, int | str] | None, got [('vcore', 1)] (list)",
    ),
    ("node", ("n", "vcore=1"), {}, "got 'vcore=1' (str)"),
    ("node", (7,), {}, "node(): node_id must be str, got 7 (int)"),
    ("node", (None,), {}, "node(): node_id must be str, got None (NoneType)"),
    ("node", ("n\ud800",), {}, "node(): node_id must be text that UTF-8 can encode, got 'n\\ud800'"),
    ("node", ("n",), {"partition": None}, "node(): partition must be str, got None"),
    ("node", ("n",), {"attributes": {"rack": 4}}, "node(): attributes['rack'] must be str, got 4 (int)"),
    (
        "node",
        ("n",),
        {"attributes": ["rack"]},
        "node(): attributes must be Mapping[str, str] | None, got ['rack'] (list)",
    ),
    ("node", ("n",), {"action": 9}, "node(): action must be from 1 to 6, got 9"),
    ("node", ("n",), {"action": "drain"}, "node(): action must be int, got 'drain' (str)"),
    ("application", (7,), {"user": "u"}, "application(): application_id must be str, got 7 (int)"),
    ("application", ("a",), {"user": None}, "application(): user must be str, got None"),
    (
        "application",
        ("a",),
        {"user": "u", "groups": "abc"},
        "application(): groups must be Sequence[str], got 'abc' (str)",
    ),
    ("application", ("a",), {"user": "u", "groups": ["a", 7]}, "application(): groups[1] must be str, got 7"),
    ("application", ("a",), {"user": "u", "tags": {"x": 1}}, "application(): tags['x'] must be str, got 1"),
    ("application", ("a",), {"user": "u", "gang": {"vcore": 0.5}}, "application(): gang['vcore'] must be"),
    (
        "application",
        ("a",),
        {"user": "u", "gang": []},
        "application(): gang must be Mapping[str, int | str] | None, got [] (list)",
    ),
    (
        "application",
        ("a",),
        {"user": "u", "gang_style": "hard"},
        "must be one of 'Soft', 'Hard', got 'hard'",
    ),
    (
        "application",
        ("a",),
        {"user": "u", "gang_timeout_s": 1.5},
        "gang_timeout_s must be int, got 1.5 (float)",
    ),
    (
        "application",
        ("a",),
        {"user": "u", "gang_timeout_s": -1},
        "application(): gang_timeout_s must be from 0 to 9223372036854775, got -1",
    ),
    ("ask", ("k", "a", None), {}, "ask(): resources must be Mapping[str, int | str], got None (NoneType)"),
    ("ask", (7, "a", {}), {}, "ask(): allocation_key must be str, got 7"),
    ("ask", ("k", None, {}), {}, "ask(): application_id must be str, got None"),
    ("ask", ("k", "a", {}), {"priority": "high"}, "ask(): priority must be int, got 'high'"),
    ("ask", ("k", "a", {}), {"priority": 2**31}, "ask(): priority must be from -2147483648 to 2147483647, got"),
    ("ask", ("k", "a", {}), {"preemption": True}, "ask(): preemption must be PreemptionPolicy | None, got True"),
    ("ask", ("k", "a", {}), {"placeholder": 1}, "ask(): placeholder must be bool, got 1 (int)"),
    ("release", (7,), {}, "release(): application_id must be str, got 7"),
    ("release", ("a", None), {}, "release(): allocation_key must be str, got None"),
    (
        "release",
        ("a", "k"),
        {"termination_type": "STOPPED"},
        "release(): termination_type must be int, got 'STOPPED' (str)",
    ),
    ("amounts", (3,), {}, "amounts(): resources must be Mapping[str, int | str], got 3 (int)"),
    (
        "Callbacks",
        (),
        {"allocated": "start"},
        "Callbacks(): allocated must be Callable[[Allocation], Awaitable[None] | None] | None, got 'start'",
    ),
]


@pytest.mark.parametrize(("function", "values", "named", "message"), WRONG)
def test_a_builder_names_the_argument_that_is_wrong(
    function: str, values: tuple[object, ...], named: dict[str, object], message: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=re.escape(message)):
        build[function](*values, **named)


UPDATES: list[tuple[str, tuple[object, ...], dict[str, object], str]] = [
    (
        "update_nodes",
        (node("n"),),
        {},
        "update_nodes(): nodes must be Sequence[NodeInfo], got NodeInfo(",
    ),
    ("update_nodes", ("n",), {}, "update_nodes(): nodes must be Sequence[NodeInfo], got 'n' (str)"),
    ("update_nodes", (["n"],), {}, "update_nodes(): nodes[0] must be NodeInfo, got 'n' (str)"),
    ("update_nodes", ([ask("k", "a", {})],), {}, "update_nodes(): nodes[0] must be NodeInfo"),
    (
        "update_nodes",
        ([NodeInfo(node_id="n", schedulable_resource={"vcore": 1.5})],),  # type: ignore[dict-item]  # on purpose
        {},
        "update_nodes(): a field has a value that cannot be sent: Expected `int`, got `float` - at `$.nodes[0].sched",
    ),
    ("update_applications", (), {"new": ["a"]}, "update_applications(): new[0] must be AddApplicationRequest"),
    ("update_applications", (), {"remove": ["a"]}, "update_applications(): remove[0] must be RemoveApplicationRequest"),
    (
        "update_allocations",
        (),
        {"allocations": [Allocation(priority=2**40)]},
        "update_allocations(): a field has a value that cannot be sent: Expected `int` <= 2147483647 - at `$.alloc",
    ),
    (
        "update_allocations",
        (),
        {"releases": release("a")},
        "update_allocations(): releases must be Sequence[AllocationRelease], got AllocationRelease(",
    ),
    ("update_configuration", (None,), {}, "update_configuration(): text must be str, got None"),
    ("update_configuration", ("",), {"extra_config": {"k": 1}}, "update_configuration(): extra_config['k'] must be"),
    ("leave", (), {"timeout_s": "10"}, "leave(): timeout_s must be float, got '10' (str)"),
    ("run", ({},), {}, "run(): callbacks must be Callbacks, got {} (dict)"),
]


@pytest.mark.parametrize(("method", "values", "named", "message"), UPDATES)
def test_a_call_names_the_argument_that_is_wrong_and_the_session_goes_on(
    method: str, values: tuple[object, ...], named: dict[str, object], message: str
) -> None:
    async def story() -> None:
        async with FakeCore() as core, await core.registers() as rm:
            call: Callable[..., Awaitable[object]] = getattr(rm, method)
            with pytest.raises((TypeError, ValueError), match=re.escape(message)):
                await call(*values, **named)
            await rm.update_nodes([node("n")])
            header, _ = await core.hears()
            assert (header.kind, header.seq) == ("NodeRequest", 1), "nothing was sent before"

    play(story)


CONNECTS: list[tuple[dict[str, object], str]] = [
    ({"rm_id": 7}, "connect(): rm_id must be str, got 7 (int)"),
    ({"config": None}, "connect(): config must be str, got None"),
    ({"build_info": {"version": 1}}, "connect(): build_info['version'] must be str, got 1 (int)"),
    (
        {"extra_config": "log.level=DEBUG"},
        "connect(): extra_config must be Mapping[str, str] | None, got 'log.level=DEBUG'",
    ),
    (
        {"predicate": "may_run"},
        "connect(): predicate must be Callable[[str, str, bool], str | None] | None, got 'may_run'",
    ),
    ({"state_dump": {}}, "connect(): state_dump must be Callable[[], str | Awaitable[str]] | None, got {}"),
    ({"events": "yes"}, "connect(): events must be bool, got 'yes'"),
    ({"keys": b"rm.key"}, "connect(): keys must be str | Path | None, got b'rm.key'"),
    ({"timeout_s": None}, "connect(): timeout_s must be float, got None"),
    ({"timeout_s": -1}, "connect(): timeout_s must be from 0 to inf, got -1"),
    ({"timeout_s": float("nan")}, "connect(): timeout_s must be from 0 to inf, got nan"),
]


@pytest.mark.parametrize(("named", "message"), CONNECTS)
def test_connecting_names_the_argument_that_is_wrong(named: dict[str, object], message: str) -> None:
    arguments: dict[str, Any] = {"rm_id": "rm-1", **named}
    with pytest.raises((TypeError, ValueError), match=re.escape(message)):
        asyncio.run(ResourceManager.connect("tcp://127.0.0.1:1", **arguments))
    with pytest.raises((TypeError, ValueError), match=re.escape(message)):
        BlockingResourceManager("tcp://127.0.0.1:1", **arguments)


@pytest.mark.parametrize("key", ["k\ud800", object(), 2**70])
def test_an_item_that_cannot_be_encoded_is_named(key: object) -> None:
    wrong = Allocation(allocation_key=cast(str, key), application_id="a")
    request = AllocationRequest(allocations=[ask("k-1", "a", {}), wrong])
    with pytest.raises(
        TypeError,
        match=r"^f\(\): a field has a value that cannot be sent: .* - at `\$\.allocations\[1\]\.allocationKey`$",
    ):
        check_command("f()", request)


def test_a_release_that_cannot_be_encoded_is_named() -> None:
    releases = [release("a", "k"), AllocationRelease(allocation_key="k\ud800")]
    request = AllocationRequest(releases=AllocationReleasesRequest(allocations_to_release=releases))
    with pytest.raises(TypeError, match=r" - at `\$\.releases\.allocationsToRelease\[1\]\.allocationKey`$"):
        check_command("f()", request)


def test_a_node_names_its_partition_in_its_attributes() -> None:
    built = node("n1", {"vcore": "4", "memory": "2Gi"}, partition="gpu", attributes={"si/rackname": "r1"})
    assert built == NodeInfo(
        node_id="n1",
        action=1,
        attributes={"si/rackname": "r1", "si/node-partition": "gpu"},
        schedulable_resource={"vcore": 4000, "memory": 2 << 30},
    )


def test_a_node_that_only_changes_needs_no_resources() -> None:
    assert node("n1", action=NODE_DRAIN) == NodeInfo(node_id="n1", action=NODE_DRAIN)


def test_an_application_has_a_user() -> None:
    assert application(
        "app", "root.a", user="alice", groups=("dev",), tags={"namespace": "n"}
    ) == AddApplicationRequest(
        application_id="app",
        queue_name="root.a",
        ugi=UserGroupInformation(user="alice", groups=["dev"]),
        tags={"namespace": "n"},
    )


def test_an_ask_with_a_node_is_an_allocation_that_already_runs() -> None:
    assert ask("k1", "app", {"vcore": "500m"}, priority=3) == Allocation(
        allocation_key="k1", application_id="app", resource_per_alloc={"vcore": 500}, priority=3
    )
    assert ask("k1", "app", {"vcore": 500}, node_id="n1").node_id == "n1"


def test_a_gang_says_what_its_placeholders_need_and_what_becomes_of_it() -> None:
    assert application(
        "app", "root.a", user="alice", gang={"vcore": "4"}, gang_style="Hard", gang_timeout_s=60
    ) == AddApplicationRequest(
        application_id="app",
        queue_name="root.a",
        ugi=UserGroupInformation(user="alice"),
        placeholder_ask={"vcore": 4000},
        gang_scheduling_style="Hard",
        execution_timeout_milli_seconds=60_000,
    )
    assert ask("p1", "app", {"vcore": 500}, task_group="workers", placeholder=True) == Allocation(
        allocation_key="p1",
        application_id="app",
        resource_per_alloc={"vcore": 500},
        task_group_name="workers",
        placeholder=True,
    )


def test_a_release_is_the_managers_own_unless_it_confirms() -> None:
    assert release("app") == AllocationRelease(application_id="app", termination_type=STOPPED_BY_RM)
    assert release("app", "k1", termination_type=TIMEOUT).termination_type == TIMEOUT


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("memory", "8GB", "'8GB' is not a quantity; write 8G (10^9) or 8Gi (2^30)"),
        ("memory", "5K", "'5K' is not a quantity (invalid suffix); write 8G (10^9) or 8Gi (2^30)"),
        ("memory", "4 apples", "'4 apples' is not a quantity; write 8G (10^9) or 8Gi (2^30)"),
        ("memory", "10E", "'10E' is not a quantity (overflow); write 8G (10^9) or 8Gi (2^30)"),
        ("vcore", "4 cores", "'4 cores' is not a quantity; write 4 or 4000m"),
    ],
)
def test_text_that_is_no_quantity_is_named_with_its_argument(kind: str, text: str, message: str) -> None:
    with pytest.raises(QuantityError) as refused:
        ask("k1", "app", {kind: text})
    assert str(refused.value) == f"ask(): resources['{kind}']: {message}"
