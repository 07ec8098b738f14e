"""The recorded verdicts of the reference scheduler on submissions, on the real queue tree."""

from pathlib import Path

import msgspec
import pytest

from tests.invariants import check
from tests.trial import START_S
from yunishard.common.config.problems import ConfigError
from yunishard.common.config.validation import load
from yunishard.common.messages.rm_messages import (
    AcceptedApplication,
    AddApplicationRequest,
    ApplicationRequest,
    RejectedApplication,
    UserGroupInformation,
)
from yunishard.partition_worker.engine.partition import Partition
from yunishard.partition_worker.engine.queues.queue import Queue

VECTORS = Path(__file__).parents[2] / "data" / "placement-vectors.yaml"


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


class Core:
    """A partition as a resource manager sees it, with the answer to each submission."""

    def __init__(self, text: str) -> None:
        self.partition = Partition(load(text).partitions[0], name="rm-1_default", now=START_S)

    def update(self, text: str) -> str:
        """Returns why the configuration is refused, or nothing."""
        try:
            config = load(text).partitions[0]
        except ConfigError as error:
            return str(error)
        objections = self.partition.objections(config)
        if not objections:
            self.partition.reconfigure(config, START_S)
            check(self.partition)
        return "; ".join(objections)

    def add(self, application_id: str, new: Application) -> Queue:
        submission = AddApplicationRequest(
            application_id=application_id,
            queue_name=new.queue,
            ugi=UserGroupInformation(user=new.user, groups=list(new.groups)),
            tags=new.tags,
            placeholder_ask=new.placeholder_ask,
        )
        effects = self.partition.apply(ApplicationRequest(new=[submission]), START_S)
        answers = (effect.part for effect in effects)
        (answer,) = (part for part in answers if isinstance(part, AcceptedApplication | RejectedApplication))
        check(self.partition)
        if isinstance(answer, RejectedApplication):
            raise Rejected(answer.reason)
        return self.partition.applications[application_id].queue


def vectors() -> list[Vector]:
    return msgspec.yaml.decode(VECTORS.read_bytes(), type=list[Vector])


@pytest.mark.parametrize("vector", vectors(), ids=lambda vector: vector.id)
def test_applications_are_placed_as_the_reference_places_them(vector: Vector) -> None:
    partition = Core(vector.config)
    for number, application in enumerate(vector.setup):
        partition.add(f"setup-{number}", application)
    refusals = [partition.update(text) for text in vector.updates]
    assert [not refusal for refusal in refusals] == list(vector.updates_accepted)
    for refusal, expected in zip(refusals, vector.go_update_errors, strict=bool(vector.go_update_errors)):
        assert expected.removeprefix("update of configuration failed: ") in refusal

    if vector.expected == "rejected":
        with pytest.raises(Rejected) as rejected:
            partition.add("app-1", vector)
        if not vector.go_panics:
            assert str(rejected.value) == vector.go_error
    else:
        queue = partition.add("app-1", vector)
        assert (queue.path, queue.managed) == (vector.expected, vector.queue_managed)
