"""Whatever differs between two answers is noticed, at its place; what is different in every run is not."""

import pytest

from tests.captures import canon
from tests.captures.canon import Document
from tests.captures.compare import ABSENT, Difference, differences

N0: Document = {"nodeID": "n0"}
MORE = Difference("/n1/a", 1, 2)


@pytest.mark.parametrize(
    ("recorded", "given", "found"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": 2}, [Difference("/a", 1, 2)]),
        ({"a": 1}, {}, [Difference("/a", 1, ABSENT)]),
        ({}, {"a": [1]}, [Difference("/a", ABSENT, [1])]),
        ([1, 2, 3], [1, 3], [Difference("/1", 2, ABSENT)]),
        ([1, 3], [1, 2, 3], [Difference("/1", ABSENT, 2)]),
        (
            [{"nodeID": "n1", "a": 1}],
            [{"nodeID": "n0"}, {"nodeID": "n1", "a": 2}],
            [MORE, Difference("/n0", ABSENT, N0)],
        ),
    ],
)
def test_each_difference_has_its_place(recorded: Document, given: Document, found: list[Difference]) -> None:
    assert list(differences(recorded, given)) == found


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"InstanceUUID":"a"}', '{"InstanceUUID":"b"}'),
        ('{"submissionTime":1750000000000000000}', '{"submissionTime":1760000000000000000}'),
        ('{"time":1750000000000}', '{"time":1760000000000}'),
        ('[{"a":1},{"a":2}]', '[{"a":2},{"a":1}]'),
        (f'"{canon.STATUSES}a,b"', f'"{canon.STATUSES}b,a"'),
    ],
)
def test_what_is_different_in_every_run_is_the_same(one: str, other: str) -> None:
    assert canon.document(one) == canon.document(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"submissionTime":1750000000000000000}', '{"submissionTime":0}'),
        ('{"submissionTime":1750000000000000000}', '{"submissionTime":1750000000000}'),
        ('{"requestTime":1700000001000000000}', '{"requestTime":1700000002000000000}'),
        ('{"stateLog":[1,2]}', '{"stateLog":[2,1]}'),
    ],
)
def test_what_is_a_fact_is_compared(one: str, other: str) -> None:
    assert canon.document(one) != canon.document(other)


def test_of_metrics_kinds_and_values_are_compared_but_no_times() -> None:
    text = """# HELP yunikorn_a_milliseconds Any words.
# TYPE yunikorn_a_milliseconds histogram
yunikorn_a_milliseconds_bucket{le="+Inf"} 2
yunikorn_a_milliseconds_sum 0.5
yunikorn_a_milliseconds_count 2
# TYPE yunikorn_b gauge
yunikorn_b{queue="root"} 1.5e+09
# TYPE other gauge
other 1
"""
    assert canon.series(text) == {
        "yunikorn_a_milliseconds": "histogram",
        "yunikorn_a_milliseconds_count": 2,
        "yunikorn_b": "gauge",
        'yunikorn_b{queue="root"}': 1_500_000_000,
    }
