"""Places sort as pairs of score and id do, and give the score back."""

from hypothesis import example, given
from hypothesis import strategies as st

from partition_worker.engine.nodes.place import BEFORE_ALL, BEHIND_ALL, place_of, score_of

SCORES = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([0.0, -0.0, 1.0, 0.5, 5e-324, -5e-324])
IDS = st.text(max_size=4)


@given(SCORES, IDS, SCORES, IDS)
@example(-0.0, "b", 0.0, "a")
@example(1.0, "n1", 1.0, "n10")
@example(0.5, "\uffff", 0.5, "\U0001f600")
def test_places_sort_as_score_and_id_do(score: float, node_id: str, other: float, other_id: str) -> None:
    place, another = place_of(score, node_id), place_of(other, other_id)
    assert (place < another) == ((score, node_id) < (other, other_id))
    assert (place == another) == ((score, node_id) == (other, other_id))


@given(SCORES, IDS)
def test_all_places_are_between_the_ends(score: float, node_id: str) -> None:
    assert BEFORE_ALL < place_of(score, node_id) < BEHIND_ALL


@given(SCORES, IDS)
def test_a_place_gives_its_score_back(score: float, node_id: str) -> None:
    assert score_of(place_of(score, node_id)) == score
