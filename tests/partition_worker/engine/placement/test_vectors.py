"""The recorded verdicts of the reference scheduler on submissions, on the real queue tree."""

from pathlib import Path

import msgspec
import pytest

from common.config.check import load
from common.config.model import PartitionConfig
from common.config.problems import ConfigError
from partition_worker.engine.placement.chain import Placement
from partition_worker.engine.placement.rule import PlacementRejected, RuleError
from partition_worker.engine.queues.queue import Queue
from partition_worker.engine.queues.tree import QueueError, Tree
from partition_worker.engine.users import Submission, User, UserError, Users, is_forced, resolver_of

VECTORS = Path(__file__).parents[3] / "data" / "placement-vectors.yaml"
GANG_SIZE_TEXT = "larger than max queue allocation"
"""The end of this text shows maps as Go prints them; the vectors' texts are informative."""


class Application(msgspec.Struct):
    user: str = ""
    groups: tuple[str, ...] = ()
    queue: str = ""
    tags: dict[str, str] = {}
    placeholder_ask: dict[str, int] = {}


class Vector(Application, kw_only=True, forbid_unknown_fields=True):
    id: str
    why: str
    config: str
    expected: str
    queue_managed: bool | None = None
    setup: tuple[Application, ...] = ()
    updates: tuple[str, ...] = ()
    updates_accepted: tuple[bool, ...] = ()
    go_update_errors: tuple[str, ...] = ()
    go_error: str = ""
    go_panics: bool = False


class Rejected(Exception):
    pass


class Partition:
    """Just enough of a partition to place applications and to take a new configuration."""

    def __init__(self, config: PartitionConfig) -> None:
        self.tree = Tree(config)
        self.gone: dict[str, Queue] = {}
        self.users = Users(resolver_of(config.user_group_resolver.type))
        try:
            self.placement = Placement(config.placement_rules)
        except RuleError:
            self.placement = Placement.none()

    def find(self, path: str) -> Queue | None:
        return self.tree.find(path) or self.gone.get(path.lower())

    def update(self, text: str) -> str:
        """Returns why the configuration is refused, or nothing; queues that it does not have drain or stay dynamic."""
        try:
            config = load(text).partitions[0]
            self.placement = Placement(config.placement_rules)
        except (ConfigError, RuleError) as error:
            return str(error)
        old, self.tree = self.tree, Tree(config)
        self.gone = {queue.path: queue for queue in old if self.tree.find(queue.path) is None}
        for queue in self.gone.values():
            queue.state = "Draining" if queue.managed else "Active"
        return ""

    def add(self, application_id: str, new: Application) -> Queue:
        forced = is_forced(new.tags)
        try:
            user = self.users.resolve(new.user, new.groups, forced=forced, now=0.0)
            submission = Submission(
                application_id=application_id, user=user, queue_name=new.queue, tags=new.tags, forced=forced
            )
            path = self.placement.place(submission, self)
        except (UserError, PlacementRejected) as error:
            raise Rejected(str(error)) from error
        queue = self.find(path) or self._created(path, user, application_id)
        if not queue.leaf:
            raise Rejected(f"failed to find queue {path} for application {application_id}")
        if new.placeholder_ask:
            _check_gang(queue, application_id, new.placeholder_ask)
        return queue

    def _created(self, path: str, user: User, application_id: str) -> Queue:
        try:
            return self.tree.create(path, user)
        except QueueError as error:
            text = f"failed to create rule based queue {path} for application {application_id}\n{error}"
            raise Rejected(text) from error


def _check_gang(queue: Queue, application_id: str, ask: dict[str, int]) -> None:
    if queue.policies.application_sort != "fifo":
        text = f"queue {queue.path} cannot run application {application_id} with task group request"
        raise Rejected(f"{text}: unsupported sort type")
    maxima = [level.maximum for level in queue.ancestry() if level.maximum is not None]
    if any(amount > maximum.get(kind, amount) for maximum in maxima for kind, amount in ask.items()):
        raise Rejected(
            f"queue {queue.path} cannot fit application {application_id}: task group request {GANG_SIZE_TEXT}"
        )


def vectors() -> list[Vector]:
    return msgspec.yaml.decode(VECTORS.read_bytes(), type=list[Vector])


@pytest.mark.parametrize("vector", vectors(), ids=lambda vector: vector.id)
def test_applications_are_placed_as_the_reference_places_them(vector: Vector) -> None:
    partition = Partition(load(vector.config).partitions[0])
    for number, application in enumerate(vector.setup):
        partition.add(f"setup-{number}", application)
    refusals = [partition.update(text) for text in vector.updates]
    assert [not refusal for refusal in refusals] == list(vector.updates_accepted)
    for refusal, expected in zip(refusals, vector.go_update_errors, strict=bool(vector.go_update_errors)):
        assert expected.removeprefix("update of configuration failed: ") in refusal

    if vector.expected == "rejected":
        with pytest.raises(Rejected) as rejected:
            partition.add("app-1", vector)
        if GANG_SIZE_TEXT not in vector.go_error and not vector.go_panics:
            assert str(rejected.value) == vector.go_error
    else:
        queue = partition.add("app-1", vector)
        assert (queue.path, queue.managed) == (vector.expected, vector.queue_managed)
