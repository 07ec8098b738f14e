"""However many groups a submission names, and however long they are, its update takes bounded time."""

import time

import pytest

from tests.machines import said
from tests.partition_worker.bench import Bench
from yunishard.common.messages.rm_messages import (
    AcceptedApplication,
    AddApplicationRequest,
    ApplicationRequest,
    ApplicationResponse,
    UserGroupInformation,
)
from yunishard.partition_worker.engine import placement

HANDLING_MAX_S = 8.0
"""Processor seconds: less than a worker may be silent, and several times what the updates here take."""

LISTED = "^(dev|ops|qa|research|prod)-[a-z0-9]+-admins$"
NESTED = "((a|b|ab)*){1,50}x"
UNCACHED = "(((a?b?){30}){30})x$"
"""RE2 cannot cache the states of this one: it takes a step for each instruction and byte."""

FILTER = "- {{name: user, create: true, filter: {{groups: ['{}']}}}}"


def bench(*rules: str, acl: str = '"*"') -> Bench:
    lines = "\n".join(f"    {rule}" for rule in rules)
    one = Bench(running=False)
    one.configure(
        f"partitions:\n- name: default\n  placementrules:\n{lines}\n"
        f"  queues: [{{name: root, submitacl: {acl}, queues: [{{name: batch}}]}}]\n"
    )
    return one


def submissions(count: int, groups: list[str], *, first: int = 0) -> ApplicationRequest:
    ugi = UserGroupInformation(user="u", groups=groups)
    return ApplicationRequest(
        new=[AddApplicationRequest(application_id=f"a{first + i}", ugi=ugi) for i in range(count)]
    )


def outcome(one: Bench, command: ApplicationRequest) -> tuple[int, list[str]]:
    """How many were accepted, and why the others were not."""
    responses = [message for message in said(one.tell(command)) if isinstance(message, ApplicationResponse)]
    accepted = [part for message in responses for part in message.accepted]
    assert all(isinstance(part, AcceptedApplication) for part in accepted)
    return len(accepted), [part.reason for message in responses for part in message.rejected]


def long_names(count: int, tail: str) -> list[str]:
    return [f"dev-{number:04}" + (tail * 1021)[:1013] for number in range(count)]


@pytest.mark.parametrize(
    ("rules", "count", "groups"),
    [
        ([FILTER.format(LISTED)], 40, long_names(500, "a")),
        ([FILTER.format(NESTED)], 1, long_names(500, "ab")),
        ([FILTER.format(UNCACHED)], 40, long_names(500, "ab")),
        ([FILTER.format(LISTED)] * 20, 10, [f"{number:x}" for number in range(65_536)]),
        (["- {name: user, filter: {groups: [x, y]}}"] * 20, 20, [f"{number:x}" for number in range(65_536)]),
        (["- {name: secondarygroup, create: true}"] * 5, 5, [f"{number:x}" for number in range(65_536)]),
    ],
    ids=["listed", "nested", "uncached", "short-names", "lists", "secondary-group"],
)
def test_an_update_with_many_or_long_groups_is_handled_in_time(rules: list[str], count: int, groups: list[str]) -> None:
    one = bench(*rules, acl="somebody")
    command = submissions(count, groups)
    started_s = time.process_time()
    accepted, reasons = outcome(one, command)
    assert time.process_time() - started_s < HANDLING_MAX_S
    assert (accepted, len(reasons)) == (0, count)


def test_an_application_that_takes_too_much_work_is_rejected_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(placement, "APPLICATION_WORK_MAX", 100_000)
    one = bench(FILTER.format(LISTED), "- {name: fixed, value: batch}")
    assert outcome(one, submissions(1, ["dev"] * 10)) == (1, [])
    accepted, reasons = outcome(one, submissions(1, long_names(20, "a"), first=1))
    assert accepted == 0
    reason = (
        "its groups take the placement rules more than 100000 units of work: submit it with fewer or shorter groups"
    )
    assert reasons == [f"failed to place application a1: {reason}"]
    assert outcome(one, submissions(1, ["dev"] * 10, first=2)) == (1, [])


def test_what_is_beyond_the_work_for_one_update_is_rejected_and_the_next_update_is_not() -> None:
    one = bench(FILTER.format(UNCACHED), "- {name: fixed, value: batch}")
    mixed = ApplicationRequest(
        new=[
            AddApplicationRequest(
                application_id=f"a{number}", ugi=UserGroupInformation(user="u", groups=long_names(10, f"{number:02}"))
            )
            for number in range(20)
        ]
    )
    accepted, reasons = outcome(one, mixed)
    assert accepted == 5
    assert len(reasons) == 15
    assert reasons[-1] == (
        f"failed to place application a19: the applications of this update take the placement rules more than "
        f"{placement.UPDATE_WORK_MAX} units of work: submit fewer applications in one update, or with fewer groups"
    )
    assert outcome(one, submissions(1, long_names(10, "99"), first=50)) == (1, [])


def test_ordinary_clusters_stay_far_below_the_bounds() -> None:
    """5,000 applications of users with 60 of 2,000 groups, five rules with filters: a tenth of the work."""
    one = bench(*[FILTER.format(LISTED)] * 5, "- {name: fixed, value: batch}")
    groups = [f"team-{number}-developers" for number in range(2000)]
    command = ApplicationRequest(
        new=[
            AddApplicationRequest(
                application_id=f"a{number}",
                ugi=UserGroupInformation(user="u", groups=[groups[(number * 7 + i * 31) % 2000] for i in range(60)]),
            )
            for number in range(5000)
        ]
    )
    spent = 0
    spend = placement.PlacementWork.spend

    def counted(self: placement.PlacementWork, units: int) -> None:
        nonlocal spent
        spent += units
        spend(self, units)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(placement.PlacementWork, "spend", counted)
        assert outcome(one, command) == (5000, [])
    assert spent < placement.UPDATE_WORK_MAX // 10
