"""A complete small resource manager. Start the core with `yunishard up`, then this:

.venv/bin/python examples/minimal_rm.py tcp://127.0.0.1:9090
"""
# ruff: noqa: T201 - an example talks to whoever runs it

import asyncio
import sys

from common.messages import AllocationResponse, ApplicationResponse, NodeResponse, RemoveApplicationRequest
from shim.manager import RegistrationRefused, ResourceManager
from shim.parts import application, ask, node, release

QUEUES = """
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: batch
"""


async def main(address: str) -> None:
    """Two nodes, one application, ten asks; each allocation is released, then the application is removed."""
    async with await ResourceManager.connect(address, rm_id="minimal", config=QUEUES) as rm:
        print("connected, partitions:", *rm.partitions)
        size = {"vcore": "4", "memory": "8Gi"}
        await rm.update_nodes([node("node-1", size), node("node-2", size)])
        await rm.update_applications(new=[application("app-1", "root.batch", user="alice")])
        asks = [ask(f"task-{number}", "app-1", {"vcore": "1", "memory": "1Gi"}) for number in range(10)]
        await rm.update_allocations(allocations=asks)

        done = 0
        async for _, news in rm.results():
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
                    ended = [release("app-1", one.allocation_key) for one in news.new]  # our tasks take no time
                    await rm.update_allocations(releases=ended)
                    done += len(news.released) + len(news.rejected_allocations)
                case _:
                    print("not expected:", news)
            if done == len(asks):
                break

        await rm.update_applications(remove=[RemoveApplicationRequest(application_id="app-1")])
        print("done")


if __name__ == "__main__":
    try:
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "tcp://127.0.0.1:9090"))
    except (ConnectionError, TimeoutError, RegistrationRefused) as error:
        sys.exit(f"minimal_rm: {error}")
