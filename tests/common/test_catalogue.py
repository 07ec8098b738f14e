"""The catalogue is consistent: what one declaration names, another one declares."""

import pytest

from yunishard.common.rest.catalogue import DOCUMENTS, TABLES, TableName, describe_tables, parse_sort
from yunishard.common.rest.columns import Table
from yunishard.webservice.operator_routes import _MESSAGES

ALL: dict[str, Table] = {**dict(TABLES.items()), **DOCUMENTS}
HEADING_MAX = 16


@pytest.mark.parametrize("name", ALL)
def test_a_table_refers_to_its_own_columns(name: str) -> None:
    table = ALL[name]
    names = [one.name for one in table.columns]
    assert len(set(names)) == len(names)
    assert table.columns[0].name == table.key
    bars = () if table.bars is None else (*table.bars.used, *table.bars[1:])
    for other in (*[one.of for one in table.columns], *[one.also for one in table.columns], *bars):
        assert other in ("", *names)
    assert {one.removeprefix("-") for one in table.sorts} <= set(table.sortable)


@pytest.mark.parametrize("name", ALL)
def test_headings_fit_a_terminal_and_meanings_are_sentences(name: str) -> None:
    for one in ALL[name].columns:
        assert len(one.title) <= HEADING_MAX, one.name
        assert one.meaning.endswith("."), one.name


@pytest.mark.parametrize("name", TABLES)
def test_usual_orders_can_be_requested(name: TableName) -> None:
    assert [parse_sort(name, one).column.name for one in TABLES[name].sorts]


@pytest.mark.parametrize("name", TABLES)
def test_the_argument_of_a_list_is_a_filter(name: TableName) -> None:
    assert TABLES[name].argument in [one.name for one in TABLES[name].filters]


def test_each_action_has_a_message_to_the_worker() -> None:
    assert {(table.noun, one.name) for table in TABLES.values() for one in table.actions} == set(_MESSAGES)


@pytest.mark.parametrize("name", TABLES)
def test_actions_are_offered_in_states_that_the_table_has(name: TableName) -> None:
    states = next((one.choices for one in TABLES[name].filters if one.name == "state"), ())
    assert {state for one in TABLES[name].actions for state in one.states} <= set(states)


def test_a_queue_can_be_stopped_or_started_in_every_state() -> None:
    stop, start = TABLES["queues"].actions
    assert (stop.states, start.states) == (("active", "draining"), ("stopped", "draining"))


def test_programs_get_every_column() -> None:
    described = describe_tables()
    for name, table in ALL.items():
        shown = described[name]
        assert isinstance(shown, dict)
        assert [one["name"] for one in shown["columns"]] == [one.name for one in table.columns]
