"""What a broker knows of its RMs is what the one before it knew."""

import msgspec
import pytest
from msgspec.structs import replace

from broker.registry import Registry
from broker.rm_records import build_record, decode_record, restore_session
from common.config.problems import ConfigError
from tests.broker.house import GPU, House, registered
from tests.machines import ONE_QUEUE, PARTITION, RM, two_partitions


def whole() -> House:
    """An RM of which there is something to know in every respect."""
    house = registered(two_partitions())
    house.update(two_partitions(), a="1")
    house.lost(GPU)
    house.agree(house.update(ONE_QUEUE, a="1"))
    return house


def test_what_is_recorded_is_all_that_has_to_be_known_again() -> None:
    house = whole()
    registration = house.switch.registry.sessions[RM]
    facts = build_record(registration, house.switch.registry)
    assert facts == house.facts[RM]
    assert decode_record(msgspec.json.encode(facts)) == facts
    assert restore_session(facts) == replace(registration, proxy="")


def test_leases_are_of_partitions_that_are_configured_or_being_taken_down() -> None:
    house = whole()
    assert house.facts[RM].leases == {PARTITION: 1, GPU: 2}
    assert (house.facts[RM].leaving, house.facts[RM].generations) == ([GPU], {GPU: 1})
    house.retired(GPU)
    assert house.facts[RM].leases == {PARTITION: 1}
    assert (house.facts[RM].leaving, house.facts[RM].generations, house.facts[RM].last_generation) == ([], {}, 1)


def test_a_text_that_is_no_configuration_any_more_is_an_error() -> None:
    house = registered()
    registry = Registry()
    registry.set_session(house.switch.registry.sessions[RM])
    facts = build_record(replace(house.switch.registry.sessions[RM], text="]"), registry)
    with pytest.raises(ConfigError):
        restore_session(facts)


def test_what_a_later_release_adds_is_ignored() -> None:
    data = msgspec.json.encode(whole().facts[RM])
    assert decode_record(data[:-1] + b',"later":7}') == whole().facts[RM]
