"""A worker and what its broker says to it, so that a test of the worker begins where it matters."""

from tests.invariants import check
from tests.machines import PARTITION, SESSION, arrives, config_of, said, sent
from yunishard.common.config.validation import load
from yunishard.common.messages.control_messages import CommitConfig, PrepareConfig
from yunishard.common.messages.kinds import Message
from yunishard.common.messages.rm_messages import (
    AddApplicationRequest,
    Allocation,
    AllocationRequest,
    AllocationResponse,
    ApplicationRequest,
    NodeInfo,
    NodeRequest,
    UserGroupInformation,
)
from yunishard.common.messages.wire import Outgoing
from yunishard.common.names import BROKER
from yunishard.partition_worker.partition_host import PartitionHost
from yunishard.partition_worker.worker import Worker

EPOCH = 5
NOW = 1000.0
NEXT = "session-2"
NODES = NodeRequest(nodes=[NodeInfo(node_id="n1", action=1, schedulable_resource={"vcore": 10_000})])
APP = ApplicationRequest(
    new=[AddApplicationRequest(application_id="a", queue_name="root.batch", ugi=UserGroupInformation(user="u"))]
)


def ask(*keys: str) -> AllocationRequest:
    return AllocationRequest(
        allocations=[Allocation(allocation_key=k, application_id="a", resource_per_alloc={"vcore": 1}) for k in keys]
    )


class Bench:
    """A worker and what its broker says to it."""

    def __init__(self, *, running: bool = True, manual: bool = False) -> None:
        self.worker = Worker(PartitionHost(partition=PARTITION, epoch=EPOCH, manual=manual))
        self.seq = 0
        if running:
            self.configure()

    def hear(self, message: Message, **fields: str | int) -> list[Outgoing]:
        return self.worker.handle(arrives(BROKER, message, partition=PARTITION, **fields), NOW)

    def configure(self, config: str = "", *, rollout: int = 1, session: str = SESSION, life: int = 0) -> None:
        message = PrepareConfig(rollout=rollout, config=load(config).partitions[0] if config else config_of())
        self.hear(message, session=session, life=life)
        self.hear(CommitConfig(rollout=rollout), session=session, life=life)
        self.seq = 0

    def tell(self, command: Message, **fields: str | int) -> list[Outgoing]:
        """The next numbered command of the session."""
        self.seq += 1
        return self.hear(command, **{"seq": self.seq, **fields})

    def furnish(self) -> None:
        """A node and an application."""
        self.tell(NODES)
        self.tell(APP)

    def schedule(self) -> list[Outgoing]:
        """Until there is nothing to decide."""
        sends: list[Outgoing] = []
        while self.worker.deadline <= NOW:
            sends += self.worker.tick(NOW)
        return sends

    def check(self) -> None:
        assert self.worker.partition is not None
        check(self.worker.partition)


def news(message: Message, seq: int, ack: int, **fields: str | int) -> Outgoing:
    return sent(BROKER, message, **{"partition": PARTITION, "seq": seq, "ack": ack, "epoch": EPOCH, **fields})


def placed(sends: list[Outgoing]) -> list[str]:
    return [one.allocation_key for m in said(sends) if isinstance(m, AllocationResponse) for one in m.new]
