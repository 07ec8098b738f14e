import math

from common.messages import INT64_MAX, INT64_MIN
from partition_worker.engine.snapshot.schema import decode_amounts, decode_sort_key, encode_amounts, encode_sort_key
from tests.builders import apps, asks, nodes, released
from tests.trial import Trial
from tests.twins import Twins, remember

HUGE = 3 * INT64_MAX


def test_sums_that_take_more_than_64_bits_are_written_as_text() -> None:
    assert encode_amounts({"memory": 5, "gpu": INT64_MIN, "vcore": HUGE}) == {
        "memory": 5,
        "gpu": INT64_MIN,
        "vcore": str(HUGE),
    }
    assert decode_amounts(encode_amounts({"memory": -HUGE, "gpu": 0})) == {"memory": -HUGE, "gpu": 0}


def test_so_are_places_in_an_order() -> None:
    place = (True, -HUGE, 0.5, math.inf, (0.25, 1.0), INT64_MAX)
    assert encode_sort_key(place) == (True, str(-HUGE), 0.5, math.inf, (0.25, 1.0), INT64_MAX)
    assert decode_sort_key(encode_sort_key(place)) == place


def test_a_partition_may_have_more_than_64_bits_of_something() -> None:
    one = Trial("root.a; root.b", made=Twins)
    one.does(nodes(*(f"n{number} memory={INT64_MAX}" for number in range(3))), apps("app-1 root.a", "app-2 root.b"))
    one.does(asks(*(f"app-1 a{number} memory={INT64_MAX}" for number in range(5)), "app-2 b1 memory=5"))
    remember(one).does(released("app-1 a0"))
    assert one.app("app-1").allocated["memory"] == 2 * INT64_MAX
    assert one.waits(7200).running
