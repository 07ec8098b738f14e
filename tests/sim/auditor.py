"""The auditor: what an RM may hear, judged by the RM's own books and by what it has heard before.

    an allocation     only of an ask that waits, on a node of the RM's that has room; once, until one of both ended it
    a release         only of something that the RM asked for, once
    a message         the same words under the same number whenever it comes; the next number, never one again
    a new beginning   (`PartitionRestarted`) only where a journal was damaged, lost or replaced by an earlier copy,
                      where the partition was removed and configured again while the RM was away, or where the RM has
                      heard nothing of the partition in this session yet
    anything          only about what the RM has in this partition

Not here: what the worker thinks (`convergence.py` compares with that, once all is quiet).
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from tests.sim.hearing import WANTED_GONE
from tests.sim.operator_changes import OperatorChanges
from tests.sim.site import Phase, Pod, Site
from tests.sim.story import Story
from yunishard.common.messages.kinds import Header, News
from yunishard.common.messages.rm_messages import (
    Allocation,
    AllocationRelease,
    AllocationResponse,
    ApplicationResponse,
    NodeResponse,
    PartitionRestarted,
    Refused,
    RejectedAllocation,
    SchedulingStateResponse,
    SyncDone,
    UpdatedApplication,
)

if TYPE_CHECKING:
    from tests.sim.rm import ResourceManager

_OUR_FAULT: Final = frozenset({"malformed", "unknown-kind", "no-partition"})
"""Codes of refusals that a correct RM never gets."""


class Violation(AssertionError):
    """Something was said that must not be. `names` are whom it concerns, for the story."""

    def __init__(self, rule: str, text: str, names: tuple[str, ...] = ()) -> None:
        super().__init__(f"{rule}: {text}")
        self.rule = rule
        self.names = names


Lane = tuple[str, str, str, int]
"""RM, session, partition, life."""


class Auditor:
    """Judges what RMs hear. Raises Violation."""

    def __init__(self, story: Story, changes: OperatorChanges) -> None:
        self.story = story
        self.changes = changes
        self.damages: dict[str, int] = {}
        """How often the journal of a partition was damaged or lost."""
        self._retired: set[tuple[str, str, int]] = set()
        """Session, partition and life of partitions that were removed from a configuration."""
        self._restarted_at: dict[str, int] = {}
        """How many damages there were when the RM last heard that the partition began anew."""
        self._settled: dict[str, int] = {}
        """The same when it had last reported everything because of that."""
        self.configurations: dict[str, dict[str, None]] = {}
        """RM to the checksums of all configurations that it was told it has."""
        self._sessions: set[tuple[str, str]] = set()
        """Those that have begun; only asked for membership."""
        self.latest_sessions: dict[str, int] = {}
        """RM to the number of the latest one."""
        self._said: dict[Lane, dict[int, bytes]] = {}
        """By lane and number, what arrived."""
        self._taken: dict[Lane, int] = {}
        """The last number that an RM took."""

    def begun(self, rm: "ResourceManager") -> bool:
        """A session is open: whether for the first time."""
        name = (rm.rm_id, rm.session.session)
        first = name not in self._sessions
        if first:  # a drain before that, in the time of the session that it replaces, was of what is forgotten now
            for partition in rm.cluster.sites:
                self.changes.lose_drains(partition)
        self._sessions.add(name)
        self.latest_sessions[rm.rm_id] = rm.session_number
        return first

    def configured(self, rm_id: str, checksum: str) -> None:
        """An RM was told that this is its configuration now."""
        self.configurations.setdefault(rm_id, {})[checksum] = None

    def damaged(self, partition: str, *, went_back: bool = False) -> None:
        """A fault has hit a journal, so the partition may forget. One that went back may use the numbers again of what
        no RM has taken.
        """
        self.damages[partition] = self.damages.get(partition, 0) + 1
        self.changes.lose_partition(partition)
        if went_back:
            for lane, said in self._said.items():
                if lane[2] == partition:
                    taken = self._taken.get(lane, 0)
                    self._said[lane] = {number: words for number, words in said.items() if number <= taken}

    def retired(self, header: Header) -> None:
        """A partition is removed from the configuration."""
        self._retired.add((header.session, header.partition, header.life))

    # Messages as they arrive ----------------------------------------------------------------------------------------

    def arrived(self, rm: "ResourceManager", header: Header, body: bytes) -> None:
        """A numbered message, whether or not the RM has it already."""
        said = self._said.setdefault((rm.rm_id, header.session, header.partition, header.life), {})
        words = header.kind.encode() + b" " + body
        before = said.setdefault(header.seq, words)
        if before != words:
            raise Violation(
                "the same number, other words",
                f"{header.partition} {header.seq} was {before!r} and is {words!r}",
                (header.partition,),
            )

    def refused(self, rm: "ResourceManager", header: Header, message: Refused) -> None:
        """The core did not act on something."""
        self.story.note(rm.rm_id, f"refused {message.code}: {message.reason}")
        if message.code in _OUR_FAULT:
            raise Violation("a correct RM is refused", f"{message}", (rm.rm_id,))

    # News as they are taken -----------------------------------------------------------------------------------------

    def heard(self, rm: "ResourceManager", header: Header, message: News) -> None:
        """News that the RM takes as new."""
        self.story.note(rm.rm_id, f"hears {header.partition} {header.seq} {message}")
        if header.rm != rm.rm_id or not header.partition.startswith(f"{rm.rm_id}_"):
            raise Violation("news of somebody else", f"{rm.rm_id} hears {header} {message}", (rm.rm_id,))
        lane = (rm.rm_id, header.session, header.partition, header.life)
        if header.seq:
            before = self._taken.get(lane, 0)
            if header.seq != before + 1:
                raise Violation("numbers", f"{header.partition}: {header.seq} after {before}", (header.partition,))
            self._taken[lane] = header.seq
        if isinstance(message, PartitionRestarted):
            self._restarted(rm.cluster.sites.get(header.partition), header)
            return
        if isinstance(message, SyncDone) and not message.problem and header.partition in self._restarted_at:
            self._settled[header.partition] = self._restarted_at.pop(header.partition)

    def judge(self, site: Site, piece: News) -> None:
        """One item of news, before the RM writes it down. Of a partition that is taken down anything may still come:
        what was on its way to it is refused.
        """
        if site.dying:
            return
        for problem, name in self._problems(site, piece):
            raise Violation(problem, f"{site.partition}: {piece}", (name,))

    def _restarted(self, site: Site | None, header: Header) -> None:
        """It may be told more than once because of one damage, until the RM has reported everything; and where there
        was nothing to forget, or a partition that is new to the RM begins, or one of which it has heard nothing yet in
        this session since it is configured: broker and worker may have died before that was durable at the worker.
        """
        partition = header.partition
        self.changes.lose_drains(partition)
        if site is None or not (site.nodes or site.applications) or site.born == (header.session, header.life):
            return
        first = site.born[1] if site.born[0] == header.session else 0
        heard = any(lane[1:3] == (header.session, partition) and first <= lane[3] < header.life for lane in self._taken)
        was_removed = any((header.session, partition, life) in self._retired for life in range(first, header.life))
        damages = self.damages.get(partition, 0)
        if heard and not was_removed and damages == self._settled.get(partition, 0):
            rule = "a partition forgot everything although its journal was whole"
            raise Violation(rule, f"{partition}: {header}", (partition,))
        self._restarted_at[partition] = damages

    def _problems(self, site: Site, message: News) -> Iterator[tuple[str, str]]:
        match message:
            case NodeResponse():
                for name in [*(one.node_id for one in message.accepted), *(one.node_id for one in message.rejected)]:
                    if name not in site.nodes and name not in site.ended_nodes:
                        yield "a node that the RM does not have", name
                    elif name in site.nodes and site.nodes[name].accepted and not site.mentioned:
                        yield "a node is accepted twice", name
                for refusal in message.rejected:
                    if "was removed" not in refusal.reason:  # of the partition the RM may not have heard yet
                        yield "a good node is refused", refusal.node_id
            case ApplicationResponse():
                names = [one.application_id for one in message.accepted]
                for name in [*names, *(one.application_id for one in message.rejected)]:
                    if name not in site.applications and name not in site.ended_applications:
                        yield "an application that the RM does not have", name
                for state in message.updated:
                    yield from _state(site, state)
            case AllocationResponse():
                for allocation in message.new:
                    yield from _allocated(site, allocation)
                for release in message.released:
                    yield from _released(site, release)
                for refusal_ in message.rejected_allocations:
                    yield from _rejected(site, refusal_)
            case SchedulingStateResponse():
                for update in message.updated:
                    pod = site.pods.get(update.allocation_key)
                    if pod is None and update.allocation_key not in site.ended:
                        yield "a hint about nothing", update.allocation_key
                    elif pod is not None and pod.hinted and not pod.hint_echo:
                        yield "a hint told twice", update.allocation_key
            case SyncDone():
                yield from _swept(site, message)


def _state(site: Site, update: UpdatedApplication) -> Iterator[tuple[str, str]]:
    name = update.application_id
    application = site.applications.get(name)
    if application is None:
        if name not in site.ended_applications:
            yield "a state of an application that the RM does not have", name
        return
    if application.state == update.state:
        yield "an application enters the state that it is in", name


def _allocated(site: Site, allocation: Allocation) -> Iterator[tuple[str, str]]:
    key = allocation.allocation_key
    pod = site.pods.get(key)
    if pod is None:
        if key not in site.ended:
            yield "an allocation that nobody asked for", key
        elif site.loose.get(key) != "any":
            yield f"an allocation of what is over ({site.ended[key]})", key
        return
    if pod.application != allocation.application_id or pod.resources != allocation.resource_per_alloc:
        yield "an allocation is not what was asked for", key
    if pod.phase in (Phase.ASKED, Phase.WITHDRAWN):
        yield from _room(site, pod, allocation.node_id)
    elif not pod.echoes:
        yield f"a second allocation of what is {pod.phase} on {pod.node}", key
    elif pod.node != allocation.node_id:
        yield f"what runs on {pod.node} is allocated on another node", key


def _room(site: Site, pod: Pod, name: str) -> Iterator[tuple[str, str]]:
    node = site.nodes.get(name)
    if node is None and name in site.ended_nodes:
        return  # decided before the core heard that it has gone
    if node is None:
        yield "an allocation on a node that the RM does not have", pod.key
        return
    used = site.used(name)
    for kind, amount in pod.resources.items():
        if used.get(kind, 0) + amount > node.largest.get(kind, 0):
            yield f"node {name} has too little {kind}: {used.get(kind, 0)} of {node.largest} is used", pod.key


def _released(site: Site, release: AllocationRelease) -> Iterator[tuple[str, str]]:
    key = release.allocation_key
    pod = site.pods.get(key)
    if pod is None:
        if key not in site.ended:
            yield "a release of what the RM never had", key
        elif key not in site.loose:
            yield f"a release of what is over ({site.ended[key]})", key
        return
    if release.termination_type in WANTED_GONE and pod.phase is Phase.LEAVING:
        yield "a release is wanted twice", key
    if release.termination_type not in WANTED_GONE and pod.phase is Phase.ASKED and not pod.crossed:
        yield "a release of what was never allocated", key


def _rejected(site: Site, refusal: RejectedAllocation) -> Iterator[tuple[str, str]]:
    key = refusal.allocation_key
    pod = site.pods.get(key)
    if pod is None:
        if key not in site.ended and not _is_foreign(site, key):
            yield "a refusal of what nobody asked for", key
    elif pod.phase not in (Phase.ASKED, Phase.WITHDRAWN) and f"allocation/{key}" not in site.mentioned:
        yield f"a refusal of what is {pod.phase}", key


def _is_foreign(site: Site, key: str) -> bool:
    return key.startswith("foreign") or any(key in node.foreign for node in site.nodes.values())


def _swept(site: Site, done: SyncDone) -> Iterator[tuple[str, str]]:
    swept = [f"node/{name}" for name in done.nodes]
    swept += [f"application/{name}" for name in done.applications]
    swept += [f"allocation/{key}" for key in done.allocations]
    for name in swept:
        if name in site.mentioned:
            yield "a report removes what it has", name.partition("/")[2]
