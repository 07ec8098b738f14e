"""A resource manager for the simulated world: a session, and books of its own about what it asked for and heard."""

from yunishard.common.messages.kinds import Command, Header
from yunishard.common.messages.rm_messages import (
    AddApplicationRequest,
    Allocation,
    AllocationRelease,
    AllocationReleasesRequest,
    AllocationRequest,
    AllocationResponse,
    ApplicationRequest,
    ApplicationResponse,
    ConfigurationUpdated,
    NodeInfo,
    NodeRequest,
    NodeResponse,
    PartitionRestarted,
    Refused,
    Registered,
    RegisterResourceManager,
    ResumeWanted,
    UpdateConfiguration,
    UserGroupInformation,
)
from yunishard.common.messages.session import EncodedMessage, Session
from yunishard.common.messages.wire import Outgoing, WireError

QUEUES = "queues: [{name: root, submitacl: '*', queues: [{name: batch}]}]"
CONFIG = f"partitions: [{{name: default, {QUEUES}}}, {{name: gpu, {QUEUES}}}]"


class RM:
    """Everything it hears goes into its books, once for each time it was heard, so that repetition shows."""

    def __init__(self, rm_id: str, *, session: str = "s1", config: str = CONFIG) -> None:
        self.rm_id = rm_id
        self.config = config
        self.connected = True
        self.session = Session(rm_id=rm_id, session=session)
        self.allocated: list[str] = []
        """`partition/key`, in the order they were heard."""
        self.released: list[str] = []
        self.refused: list[str] = []
        self.nodes: list[str] = []
        self.refused_nodes: list[str] = []
        self.applications: list[str] = []
        self.failing: list[str] = []
        """`partition/application` of those that the core ends, with all asks that wait."""
        self.refusals: list[Refused] = []
        self.restarts: list[str] = []
        self.checksum = ""
        """Of the configuration that it was last told it has."""
        self.updates = 0
        """Changes of its configuration that it has heard of, its own among them."""
        self._connections = 1
        self._sessions = 1
        self._wanted, self._asking = config, False

    @property
    def peer(self) -> str:
        """Its connection's name at the proxy."""
        return f"native:{self.rm_id}.{self._connections}"

    @property
    def open(self) -> bool:
        return self.session.state == "open"

    def reconnected(self) -> str:
        self._connections += 1
        self.connected = True
        return self.peer

    # What it says ---------------------------------------------------------------------------------------------------

    def ask_again(self) -> list[Outgoing]:
        """The core began anew, as its proxy says: what was asked may never have been heard."""
        if self.session.state == "registering":
            return self.register()
        return [*self.resume(), *(self.reconfigure(self._wanted) if self._asking else [])]

    def begin_again(self) -> list[Outgoing]:
        """A new process: a new session, on a new connection."""
        self._sessions += 1
        self.session = Session(rm_id=self.rm_id, session=f"s{self._sessions}")
        self.reconnected()
        return self.register()

    def register(self) -> list[Outgoing]:
        return self._sends([self.session.register(RegisterResourceManager(rm_id=self.rm_id, config=self.config))])

    def reconfigure(self, text: str) -> list[Outgoing]:
        """Ask for another configuration, which becomes its own once it hears that it is in force."""
        self._wanted, self._asking = text, True
        return self._sends([self.session.update_configuration(UpdateConfiguration(rm_id=self.rm_id, config=text))])

    def resume(self, partition: str = "") -> list[Outgoing]:
        return self._sends([self.session.resume(partition, ref=f"resume {partition}")])

    def leave(self) -> list[Outgoing]:
        return self._sends([self.session.leave()])

    def update(self, command: Command) -> list[Outgoing]:
        """Say it now, or once the session has been resumed."""
        outgoing = [one for one in self.session.update(command) if self.session.is_open(one.header.partition)]
        return self._sends(outgoing) if self.connected else []

    def furnish(self, partition: str, *, nodes: int, vcore: int) -> list[Outgoing]:
        """Nodes and an application in a partition."""
        infos = [
            NodeInfo(
                node_id=f"n{number}",
                action=1,
                attributes={"si/node-partition": partition},
                schedulable_resource={"vcore": vcore},
            )
            for number in range(nodes)
        ]
        user = UserGroupInformation(user="u")
        new = AddApplicationRequest(application_id="app", queue_name="root.batch", partition_name=partition, ugi=user)
        return [*self.update(NodeRequest(nodes=infos)), *self.update(ApplicationRequest(new=[new]))]

    def ask(self, partition: str, *keys: str) -> list[Outgoing]:
        """For one vcore each."""
        return self.update(
            AllocationRequest(
                allocations=[
                    Allocation(
                        allocation_key=key,
                        application_id="app",
                        partition_name=partition,
                        resource_per_alloc={"vcore": 1},
                    )
                    for key in keys
                ]
            )
        )

    def release(self, partition: str, *keys: str) -> list[Outgoing]:
        releases = [
            AllocationRelease(partition_name=partition, application_id="app", allocation_key=key) for key in keys
        ]
        return self.update(AllocationRequest(releases=AllocationReleasesRequest(allocations_to_release=releases)))

    # What it hears --------------------------------------------------------------------------------------------------

    def hear(self, header: Header, body: bytes) -> list[Outgoing]:
        """Note it, and what to say because of it.

        After two breaks in a row, news that were repeated because of the first may arrive on the third connection with
        their beginning lost: a gap, which another resumption mends.
        """
        before = self.session.state
        try:
            message = self.session.receive(header, body)
        except WireError:
            return self.resume() if self.open else []
        partition = header.partition
        match message:
            case Registered() if header.partition:
                return self._sends(self.session.retransmissions(header.partition))
            case Registered():
                self.checksum = message.checksum
                return self._sends(self.session.retransmissions())
            case ConfigurationUpdated():
                self.checksum = message.checksum
                self.updates += 1
                if not message.author:
                    self.config, self._asking = self._wanted, False
            case NodeResponse():
                self.nodes += [f"{partition}/{one.node_id}" for one in message.accepted]
                self.refused_nodes += [f"{partition}/{one.node_id}" for one in message.rejected]
            case ApplicationResponse():
                self.applications += [f"{partition}/{one.application_id}" for one in message.accepted]
                self.failing += [
                    f"{partition}/{one.application_id}" for one in message.updated if one.state == "Failing"
                ]
            case AllocationResponse():
                self.allocated += [f"{partition}/{one.allocation_key}" for one in message.new]
                self.released += [f"{partition}/{one.allocation_key}" for one in message.released]
                self.refused += [f"{partition}/{one.allocation_key}" for one in message.rejected_allocations]
            case Refused(code="gap") | ResumeWanted():
                return self.resume(partition) if self.session.is_open(partition) else []
            case Refused(code="busy") if header.ref.startswith("resume"):
                return self.resume(header.ref.removeprefix("resume "))
            case Refused() if before == "open" and self.session.state == "away":
                return self.resume()  # all partitions, as one alone may not
            case Refused():
                self._asking = False
                self.refusals.append(message)
            case PartitionRestarted():
                self.restarts.append(partition)
        return self._sends(self.session.acknowledgements())

    def _sends(self, outgoing: list[EncodedMessage]) -> list[Outgoing]:
        return [Outgoing("rmproxy", one.header, one.body) for one in outgoing]
