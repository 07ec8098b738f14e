"""A complete small resource manager. Start the core with `yunishard up`, then this:

.venv/bin/python examples/minimal_rm.py tcp://127.0.0.1:9090
"""
# ruff: noqa: T201 - an example prints its progress

import asyncio
import sys

from yunishard import (
    AllocationResponse,
    ApplicationResponse,
    NodeResponse,
    PartitionRestarted,
    ResourceManager,
    YunishardError,
    application,
    ask,
    connect,
    node,
    release,
    removal,
)

QUEUES = """
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: batch
"""


async def report(rm: ResourceManager, tasks: list[str]) -> None:
    """Report everything: two nodes, one application, and an ask for each task that has not ended."""
    size = {"vcore": "4", "memory": "8Gi"}
    await rm.update_nodes([node("node-1", size), node("node-2", size)])
    await rm.update_applications(new=[application("app-1", "root.batch", user="alice")])
    asks = [ask(key, "app-1", {"vcore": "1", "memory": "1Gi"}) for key in tasks]
    await rm.update_allocations(allocations=asks)


async def main(address: str) -> None:
    """Release each allocation; remove the application when no task is left."""
    async with connect(address, rm_id="minimal", config=QUEUES) as rm:
        print("connected, partitions:", *rm.partitions)
        tasks = [f"task-{number}" for number in range(10)]
        await report(rm, tasks)

        async for partition, news in rm.results():
            match news:
                case NodeResponse():
                    print("nodes:", *(one.node_id for one in news.accepted), "accepted")
                case ApplicationResponse():
                    for update in news.updated:
                        print(f"{update.application_id} is {update.state}")
                case AllocationResponse():
                    for one in news.new:
                        print(f"{one.allocation_key} runs on {one.node_id}")
                    for refused in news.rejected_allocations:
                        print(f"{refused.allocation_key} is rejected: {refused.reason}")
                    ended = [release("app-1", one.allocation_key) for one in news.new]  # these tasks take no time
                    await rm.update_allocations(releases=ended)
                    over = {one.allocation_key for one in news.released}
                    over |= {one.allocation_key for one in news.rejected_allocations}
                    tasks = [key for key in tasks if key not in over]
                case PartitionRestarted():
                    async with rm.resync(partition, reason=news.reason) as sync:
                        await report(rm, tasks)
                    print("reported again; removed by the core:", sync.swept)
                case _:
                    print("not expected:", news)
            if not tasks:
                break

        await rm.update_applications(remove=[removal("app-1")])
        print("done")


if __name__ == "__main__":
    try:
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "tcp://127.0.0.1:9090"))
    except YunishardError as error:  # refused, no connection, no answer, a key file that cannot be used
        sys.exit(f"minimal_rm: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
