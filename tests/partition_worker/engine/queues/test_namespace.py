import pytest

from partition_worker.engine.queues.queue import Queue
from partition_worker.engine.queues.tree import (
    GUARANTEED_TAG,
    MAX_APPLICATIONS_TAG,
    QUOTA_TAG,
    apply_namespace_quota,
    read_namespace_quota,
)

FIVE = '{"resources": {"memory": {"value": 5}}}'


def queue(**settings: object) -> Queue:
    made = Queue(path="root.ns", parent=None, rank=1, leaf=True, managed=False)
    for name, value in settings.items():
        setattr(made, name, value)
    return made


def test_the_tags_say_what_a_namespace_may_use_in_any_case() -> None:
    quota = read_namespace_quota({QUOTA_TAG.upper(): FIVE, MAX_APPLICATIONS_TAG: "3"})
    assert quota == (3, {"memory": 5}, None, ())


def test_without_tags_nothing_is_said() -> None:
    assert read_namespace_quota({"namespace": "dev"}) == (None, None, None, ())
    assert read_namespace_quota({QUOTA_TAG: "", MAX_APPLICATIONS_TAG: ""}) == (None, None, None, ())


@pytest.mark.parametrize(
    "text",
    [
        "not json",
        "[]",
        "null",
        "{}",
        '{"resources": {"memory": null}}',
        '{"resources": {"memory": {"value": 5}, "gpu": null}}',
        '{"resources": {"memory": {"value": "5"}}}',
        '{"resources": {"memory": {"value": 5.5}}}',
        '{"resources": {"memory": {"value": 9223372036854775808}}}',
        '{"resources": {"memory": 5}}',
        '{"resources": ' * 10_000,
        "[" * 100_000,
    ],
)
def test_what_cannot_be_read_sets_nothing_and_is_reported(text: str) -> None:
    quota = read_namespace_quota({QUOTA_TAG: text})
    assert quota.maximum is None
    assert [problem.partition(":")[0] for problem in quota.problems] == [f"tag {QUOTA_TAG}"]


@pytest.mark.parametrize(
    "text",
    [
        '{"resources": {}}',
        '{"resources": {"memory": {"value": 0}}}',
        '{"resources": {"memory": {}}}',
        '{"resources": {"memory": {"value": 5}, "vcore": {"value": -1}}}',
    ],
)
def test_amounts_that_limit_nothing_are_none(text: str) -> None:
    assert read_namespace_quota({QUOTA_TAG: text}) == (None, None, None, ())


@pytest.mark.parametrize("text", ["-1", "+1", "1.0", " 1", "many", "\N{FULLWIDTH DIGIT ONE}", "9" * 5000])
def test_a_number_of_applications_is_a_plain_decimal(text: str) -> None:
    quota = read_namespace_quota({MAX_APPLICATIONS_TAG: text})
    assert quota.max_applications is None
    assert len(quota.problems) == 1
    assert len(quota.problems[0]) < 200


def test_no_applications_at_all_is_no_number() -> None:
    assert read_namespace_quota({MAX_APPLICATIONS_TAG: "0"}) == (None, None, None, ())


def test_maximum_and_guarantee_are_set_together() -> None:
    ns = queue(maximum={"memory": 1}, guaranteed={"memory": 1}, max_applications=7)
    assert apply_namespace_quota(ns, read_namespace_quota({QUOTA_TAG: FIVE}))
    assert (ns.maximum, ns.guaranteed, ns.max_applications) == ({"memory": 5}, None, 7)
    assert apply_namespace_quota(ns, read_namespace_quota({GUARANTEED_TAG: FIVE, QUOTA_TAG: "broken"}))
    assert (ns.maximum, ns.guaranteed) == (None, {"memory": 5})


def test_what_changes_nothing_is_known() -> None:
    ns = queue(maximum={"memory": 5}, guaranteed={"memory": 1}, max_applications=7)
    assert not apply_namespace_quota(ns, read_namespace_quota({}))
    assert not apply_namespace_quota(
        ns, read_namespace_quota({QUOTA_TAG: FIVE, GUARANTEED_TAG: FIVE.replace("5", "1"), MAX_APPLICATIONS_TAG: "7"})
    )
    assert (ns.maximum, ns.guaranteed, ns.max_applications) == ({"memory": 5}, {"memory": 1}, 7)
