"""What an RM makes of the news of a partition: it writes them into its books, and confirms what it is asked to end.

Not here: whether it may hear that (`auditor.py`, which looks first), calls and sessions (`rm.py`).
"""

from typing import TYPE_CHECKING, Final

from tests.sim.site import Phase, Pod, Site
from yunishard.common.messages.kinds import News
from yunishard.common.messages.rm_messages import (
    PLACEHOLDER_REPLACED,
    PREEMPTED_BY_SCHEDULER,
    STOPPED_BY_RM,
    TIMEOUT,
    Allocation,
    AllocationRelease,
    AllocationReleasesRequest,
    AllocationRequest,
    AllocationResponse,
    ApplicationRequest,
    ApplicationResponse,
    NodeResponse,
    RejectedAllocation,
    RemoveApplicationRequest,
    SchedulingStateResponse,
    UpdatedApplication,
)
from yunishard.common.messages.session import EncodedMessage

if TYPE_CHECKING:
    from tests.sim.rm import ResourceManager

DELETE_MAX_S: Final = 1.0
"""How long the deletion of a pod takes."""

WANTED_GONE: Final = frozenset({TIMEOUT, PREEMPTED_BY_SCHEDULER, PLACEHOLDER_REPLACED})
"""Types of releases that ask for a confirmation."""


def pieces(message: News) -> list[News]:
    """The same news one item at a time, as each item is judged by what those before it have changed."""
    match message:
        case NodeResponse():
            return [
                *(NodeResponse(accepted=[one]) for one in message.accepted),
                *(NodeResponse(rejected=[one]) for one in message.rejected),
            ]
        case ApplicationResponse():
            return [
                *(ApplicationResponse(accepted=[one]) for one in message.accepted),
                *(ApplicationResponse(rejected=[one]) for one in message.rejected),
                *(ApplicationResponse(updated=[one]) for one in message.updated),
            ]
        case AllocationResponse():
            return [
                *(AllocationResponse(new=[one]) for one in message.new),
                *(AllocationResponse(released=[one]) for one in message.released),
                *(AllocationResponse(rejected_allocations=[one]) for one in message.rejected_allocations),
            ]
    return [message]


def hear(rm: "ResourceManager", site: Site, message: News) -> list[EncodedMessage]:
    """Write it down; what to say at once because of it."""
    out: list[EncodedMessage] = []
    match message:
        case NodeResponse():
            for accepted in message.accepted:
                if accepted.node_id in site.nodes:
                    site.nodes[accepted.node_id].accepted = True
            for refused in message.rejected:
                site.nodes.pop(refused.node_id, None)
        case ApplicationResponse():
            for one in message.accepted:
                out += _accepted(rm, site, one.application_id)
            for rejection in message.rejected:
                _application_ended(site, rejection.application_id, "rejected")
            for state in message.updated:
                _entered(site, state)
        case AllocationResponse():
            for allocation in message.new:
                _allocated(site, allocation)
            for release in message.released:
                out += _released(rm, site, release)
            for refusal in message.rejected_allocations:
                out += _rejected(rm, site, refusal)
        case SchedulingStateResponse():
            for update in message.updated:
                if update.allocation_key in site.pods:
                    pod = site.pods[update.allocation_key]
                    pod.hint_echo = pod.hint_echo and not pod.hinted
                    pod.hinted = True
    return out


def _accepted(rm: "ResourceManager", site: Site, name: str) -> list[EncodedMessage]:
    application = site.applications.get(name)
    if application is not None:
        application.state = "accepted"
        return []
    # It was reported once more when it had just ended: nobody wants it now, nor what was asked for it meanwhile.
    _withdraw(site, name)
    gone = RemoveApplicationRequest(application_id=name, partition_name=site.partition)
    return rm.update(site, ApplicationRequest(remove=[gone]))


def _application_ended(site: Site, name: str, why: str) -> None:
    """It takes with it what is not placed; what is placed ends when the core says so."""
    _withdraw(site, name)
    site.end_application(name, why)


def _withdraw(site: Site, name: str) -> None:
    """Nothing that is asked for an application is wanted any more."""
    for pod in site.pods.values():
        if pod.application == name and pod.phase is Phase.ASKED:
            pod.phase = Phase.WITHDRAWN


def _entered(site: Site, update: UpdatedApplication) -> None:
    application = site.applications.get(update.application_id)
    if application is None:
        return
    application.state = update.state
    killed = " killed by " in update.message  # one that completes may have an ask in flight, and is then Completed
    if update.state in ("Failing", "Failed") or killed:
        _withdraw(site, update.application_id)
    if update.state in ("Failed", "Completed"):
        site.end_application(update.application_id, update.state)


def _allocated(site: Site, allocation: Allocation) -> None:
    pod = site.pods.get(allocation.allocation_key)
    if pod is None:
        return
    if pod.phase is Phase.ASKED:
        pod.phase, pod.node = Phase.BOUND, allocation.node_id
    elif pod.phase is Phase.WITHDRAWN:
        pod.phase, pod.node = Phase.RELEASING, allocation.node_id
    elif pod.echoes:
        pod.echoes -= 1


def _released(rm: "ResourceManager", site: Site, release: AllocationRelease) -> list[EncodedMessage]:
    pod = site.pods.get(release.allocation_key)
    if pod is None:
        return []
    if release.termination_type not in WANTED_GONE:
        return _ended(rm, site, pod, f"the core said so: {release.message}")
    asked = pod.phase in (Phase.ASKED, Phase.WITHDRAWN)
    if asked and pod.crossed and release.termination_type == PREEMPTED_BY_SCHEDULER:
        pass  # it is not there any more, and the core hears that it waits for another node, or is withdrawn
    elif pod.phase is Phase.BOUND or (pod.phase is Phase.ASKED and pod.crossed):
        pod.phase, pod.leaves_as = Phase.LEAVING, release.termination_type
        rm.confirm_later(site, pod.key, rm.rng.uniform(0.01, DELETE_MAX_S))
    elif asked:
        return _ended(rm, site, pod, "its placeholder was never placed")
    return []


def _ended(rm: "ResourceManager", site: Site, pod: Pod, why: str, *, loose: str = "") -> list[EncodedMessage]:
    """A pod is over, says the core. Where a report is on its way that asks for it anew, the RM takes that back."""
    reported = site.syncing and f"allocation/{pod.key}" in site.mentioned
    site.end(pod.key, why, loose="any" if reported else loose)
    return rm.update(site, releases(site, [(pod, STOPPED_BY_RM)])) if reported else []


def confirmed(site: Site, key: str) -> AllocationRequest | None:
    """The pod is deleted: what to say about it, if it was still to be said."""
    pod = site.pods.get(key)
    if pod is None or pod.phase is not Phase.LEAVING:
        return None
    site.end(key, "deleted, as the core wanted", loose="any" if pod.crossed else "release")
    return releases(site, [(pod, pod.leaves_as)])


def releases(site: Site, chosen: list[tuple[Pod, int]]) -> AllocationRequest:
    """The RM lets these go, with these types."""
    going = [
        AllocationRelease(
            partition_name=site.partition,
            application_id=pod.application,
            allocation_key=pod.key,
            termination_type=termination_type,
        )
        for pod, termination_type in chosen
    ]
    return AllocationRequest(releases=AllocationReleasesRequest(allocations_to_release=going))


def _rejected(rm: "ResourceManager", site: Site, refusal: RejectedAllocation) -> list[EncodedMessage]:
    """It is over. Where a report is on its way that mentions it, nobody can say which of both this answers: so the RM
    takes back what it reports.
    """
    key = refusal.allocation_key
    for node in site.nodes.values():
        if node.foreign.pop(key, None) is not None and site.syncing and f"allocation/{key}" in site.mentioned:
            return rm.update(site, foreign_release(site, key))
    pod = site.pods.get(key)
    return [] if pod is None else _ended(rm, site, pod, f"rejected: {refusal.reason}", loose="any")


def foreign_release(site: Site, key: str) -> AllocationRequest:
    """What nobody asked of us does not run any more."""
    gone = AllocationRelease(partition_name=site.partition, allocation_key=key)
    return AllocationRequest(releases=AllocationReleasesRequest(allocations_to_release=[gone]))
