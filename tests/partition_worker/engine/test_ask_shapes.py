"""What asks need, as values."""

from partition_worker.engine.ask_shapes import AskShape, amounts_of


def test_the_order_in_which_types_were_written_makes_no_difference() -> None:
    assert (
        amounts_of({"vcore": 1, "memory": 2}) == amounts_of({"memory": 2, "vcore": 1}) == (("memory", 2), ("vcore", 1))
    )


def test_an_ask_that_must_run_on_one_node_needs_something_else() -> None:
    amounts = amounts_of({"memory": 2})
    assert AskShape(amounts, "n1") != AskShape(amounts)
