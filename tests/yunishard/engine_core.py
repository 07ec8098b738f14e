"""A core for the tests of the replay and the fake RM: the real engine, in no time between message and answer."""

from collections.abc import Iterable
from typing import TypeVar

from yunishard.common.config.validation import load
from yunishard.common.messages import rm_messages
from yunishard.common.messages.kinds import Command
from yunishard.common.names import NODE_PARTITION, normalise_partition_name
from yunishard.common.rm_player import Batch
from yunishard.partition_worker.engine.effects import Effect
from yunishard.partition_worker.engine.partition import Partition
from yunishard.partition_worker.rm_channel import build_messages
from yunishard.sdk.items import Result

START = 1_000_000.0
"""Time 0, on the engine's clock."""

_Item = TypeVar(
    "_Item",
    rm_messages.AddApplicationRequest,
    rm_messages.RemoveApplicationRequest,
    rm_messages.Allocation,
    rm_messages.AllocationRelease,
)


class EngineCore:
    """All partitions of one RM."""

    def __init__(self, text: str, *, rm_id: str) -> None:
        self._configs = {normalise_partition_name(rm_id, one.name): one for one in load(text).partitions}
        self._names = {one.name: name for name, one in self._configs.items()}
        self.partitions: dict[str, Partition] = {}
        """By normalised name."""
        self.now = 0.0
        for name in self._configs:
            self.lose(name)
        self.refuse: set[str] = set()
        """Applications to reject."""
        self.cut_off = 0
        """Allocations that went with their application, not by a release of their own."""

    def lose(self, name: str) -> None:
        """Let a partition lose its state."""
        self.partitions[name] = Partition(self._configs[name], name=name, now=START + self.now)

    def keys(self, name: str, *, running: bool) -> list[str]:
        """The keys of what runs, or of what waits, in order."""
        return sorted(key for key, one in self.partitions[name].allocations.items() if bool(one.node_id) == running)

    @property
    def next_timer(self) -> float:
        return min(one.next_timer for one in self.partitions.values()) - START

    @property
    def empty(self) -> bool:
        """Nothing of any application is left."""
        return not any(one.applications or one.allocations for one in self.partitions.values())

    def take(self, batch: Batch, now: float) -> list[Result]:
        """Act on a batch, and decide; the answers that the SDK hands on, in order."""
        self.now = now
        refused = [one for one in batch.applications if one.application_id in self.refuse]
        results = [
            Result(
                self._names[one.partition_name],
                rm_messages.ApplicationResponse(
                    rejected=[rm_messages.RejectedApplication(application_id=one.application_id, reason="not today")]
                ),
            )
            for one in refused
        ]
        for name, partition in self.partitions.items():
            effects: list[Effect] = []
            for command in self._build_commands(name, batch):
                for one in command.remove if isinstance(command, rm_messages.ApplicationRequest) else ():
                    gone = partition.applications.get(one.application_id)
                    self.cut_off += 0 if gone is None else len(gone.allocations)
                effects += partition.apply(command, START + now)
            while not partition.idle or partition.next_change <= START + now:
                effects += partition.step(START + now, 512)
            results += [
                Result(name, message)
                for message in build_messages(effects)
                if not isinstance(message, rm_messages.SyncDone)
            ]
        return results

    def _build_commands(self, name: str, batch: Batch) -> list[Command]:
        """The part of a batch that is for a partition, as the SDK sends it."""
        nodes = [one for one in batch.nodes if self._names[one.attributes[NODE_PARTITION]] == name]
        new = [one for one in self._choose(name, batch.applications) if one.application_id not in self.refuse]
        asks = [one for one in self._choose(name, batch.asks) if one.application_id not in self.refuse]
        releases = rm_messages.AllocationReleasesRequest(allocations_to_release=self._choose(name, batch.releases))
        commands: list[Command] = [
            rm_messages.NodeRequest(nodes=nodes),
            rm_messages.ApplicationRequest(new=new),
            rm_messages.AllocationRequest(allocations=asks, releases=releases),
            rm_messages.ApplicationRequest(remove=self._choose(name, batch.removals)),
        ]
        if any(self._names[one] == name for one in batch.reports):
            counts = rm_messages.SyncEnd()
            for one in commands:
                counts = rm_messages.count_reported(counts, one)
            commands = [rm_messages.SyncBegin(), *commands, counts]
        return commands

    def _choose(self, name: str, items: Iterable[_Item]) -> list[_Item]:
        return [one for one in items if self._names[one.partition_name] == name]
