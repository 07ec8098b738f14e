"""A partition begins with its simulated nodes, without a word to the RM, and a full report of the RM leaves them."""

from tests.machines import PARTITION, said
from tests.partition_worker.bench import APP, EPOCH, NODES, ask, placed
from tests.partition_worker.desk import Desk
from yunishard.common.messages.rm_messages import Heartbeat, NodeRequest, SyncBegin, SyncDone, SyncEnd
from yunishard.common.settings import Settings, replace_settings
from yunishard.partition_worker.service import make_worker

SIMULATED = replace_settings(Settings(), {"simulated_nodes": 3, "node_resources": "vcore=2,memory=1Gi"})


class SimulatedDesk(Desk):
    """A worker with the settings of `up --simulated-nodes 3`."""

    def __init__(self) -> None:
        super().__init__(running=False)
        self.worker = make_worker(SIMULATED, PARTITION, EPOCH)
        self.configure()

    @property
    def nodes(self) -> list[str]:
        return sorted(node.node_id for node in self.partition.nodes)


def test_a_new_partition_has_nodes_of_the_wanted_size_and_tells_the_rm_nothing() -> None:
    desk = SimulatedDesk()
    assert desk.nodes == ["simulated-1", "simulated-2", "simulated-3"]
    assert {node.capacity["vcore"] for node in desk.partition.nodes} == {2000}
    assert {type(one) for one in said(desk.tick())} <= {Heartbeat}


def test_an_ask_of_an_rm_without_nodes_runs_there() -> None:
    desk = SimulatedDesk()
    desk.tell(APP)
    desk.tell(ask("k"))
    assert placed(desk.schedule()) == ["k"]


def test_a_full_report_removes_nodes_of_the_rm_and_leaves_simulated_ones() -> None:
    desk = SimulatedDesk()
    desk.tell(NODES)
    own = [one.node_id for one in NODES.nodes] if isinstance(NODES, NodeRequest) else []
    assert set(own) <= set(desk.nodes)
    desk.tell(SyncBegin(reason="a test"))
    done = [one for one in said(desk.tell(SyncEnd())) if isinstance(one, SyncDone)]
    assert [one.nodes for one in done] == [own]
    assert desk.nodes == ["simulated-1", "simulated-2", "simulated-3"]


def test_a_new_session_of_the_rm_begins_with_all_of_them_again() -> None:
    desk = SimulatedDesk()
    desk.tell(APP)
    desk.configure(rollout=2, session="session-2")
    assert len(desk.nodes) == 3
    assert not desk.partition.applications
