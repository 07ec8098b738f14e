"""The public package: what `from yunishard import ...` offers."""

import asyncio
import subprocess
import sys

import pytest

import yunishard
from tests.yunishard.fake_core import PARTITION, FakeCore, play
from yunishard.common.messages.rm_messages import (
    AllocationRelease,
    AllocationResponse,
    ApplicationResponse,
    UpdatedApplication,
)
from yunishard.sdk import exceptions
from yunishard.sdk.items import complete_result


def test_every_public_name_can_be_imported() -> None:
    assert all(hasattr(yunishard, name) for name in yunishard.__all__)
    assert sorted(yunishard.__all__) == yunishard.__all__
    with pytest.raises(AttributeError, match="no attribute 'conect'"):
        yunishard.conect  # noqa: B018 - the access is what is tested


def test_importing_the_package_loads_no_module_of_the_sdk() -> None:
    script = (
        "import sys, yunishard; print(sorted(name for name in sys.modules if name.startswith(('yunishard.', 'zmq'))))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("name", [name for name in exceptions.__dict__ if isinstance(getattr(exceptions, name), type)])
def test_every_exception_of_the_sdk_has_one_base(name: str) -> None:
    kind = getattr(exceptions, name)
    if kind.__module__ == exceptions.__name__:
        assert issubclass(kind, yunishard.YunishardError)


def test_connect_works_with_and_without_await() -> None:
    async def serve(core: FakeCore) -> None:
        await core.welcomes(PARTITION)
        await core.lets_go()

    async def whole() -> None:
        async with FakeCore() as core:
            serving = asyncio.create_task(serve(core))
            async with yunishard.connect(core.address, rm_id="rm-1") as rm:
                assert rm.partitions == (PARTITION,)
            await serving
        async with FakeCore() as core:
            serving = asyncio.create_task(serve(core))
            async with await yunishard.connect(core.address, rm_id="rm-1") as rm:
                assert rm.partitions == (PARTITION,)
            await serving

    play(whole)


def test_connect_checks_its_arguments_at_the_call() -> None:
    with pytest.raises(TypeError, match=r"connect\(\): rm_id must be str, got 1 \(int\)"):
        yunishard.connect("tcp://127.0.0.1:9", rm_id=1)  # type: ignore[arg-type] # wrong on purpose


def test_results_carry_enums_and_the_partition() -> None:
    released = AllocationRelease(application_id="app-1", allocation_key="a", termination_type=3)
    unknown = AllocationRelease(application_id="app-1", allocation_key="b", termination_type=99)
    complete_result(yunishard.Result("rm_default", AllocationResponse(released=[released, unknown])))
    assert released.termination_type is yunishard.TerminationType.PREEMPTED_BY_SCHEDULER
    assert released.partition_name == "rm_default"
    assert unknown.termination_type == 99
    updated = UpdatedApplication(application_id="app-1", state="Running")
    complete_result(yunishard.Result("rm_default", ApplicationResponse(updated=[updated])))
    assert updated.state is yunishard.ApplicationState.RUNNING
