import logging
from collections.abc import Iterator

import pytest

from yunishard.common.process.logs import LogLevels

PARTITION = "core.scheduler.partition"


@pytest.fixture
def levels() -> Iterator[LogLevels]:
    logging.getLogger("core.rpc"), logging.getLogger(PARTITION)
    followed = LogLevels("core", "other")
    yield followed
    followed.apply({})


def level_of(name: str) -> int:
    return logging.getLogger(name).getEffectiveLevel()


def test_a_level_covers_the_logger_and_all_below_it_and_the_longest_name_wins(levels: LogLevels) -> None:
    levels.apply({"log.level": "ERROR", "log.core.scheduler.level": "debug", "log.core.rpc.level": "5"})
    assert level_of("core.config") == logging.ERROR
    assert level_of(PARTITION) == logging.DEBUG
    assert level_of("core.rpc") == logging.CRITICAL
    levels.apply({"log.core.scheduler.level": "debug", f"log.{PARTITION}.level": "warn"})
    assert level_of(PARTITION) == logging.WARNING


def test_what_is_no_longer_said_no_longer_counts(levels: LogLevels) -> None:
    before = level_of(PARTITION), level_of("core.rpc")
    levels.apply({"log.level": "fatal", f"log.{PARTITION}.level": "debug"})
    levels.apply({})
    assert (level_of(PARTITION), level_of("core.rpc")) == before
    assert logging.getLogger("core").level == logging.NOTSET


def test_a_level_that_is_none_changes_nothing(levels: LogLevels) -> None:
    before = level_of(PARTITION)
    levels.apply({"log.level": "loud", "log.core..rpc.level": "debug", "log.core rpc.level": "debug"})
    assert level_of(PARTITION) == before


@pytest.mark.parametrize("name", ["asyncio", "root", "corex", "zmq.core"])
def test_loggers_that_are_not_ours_cannot_be_set(levels: LogLevels, name: str) -> None:
    before = level_of(name)
    levels.apply({f"log.{name}.level": "fatal"})
    assert level_of(name) == before


def test_the_logger_above_all_of_ours_can_be_set_by_its_name(levels: LogLevels) -> None:
    levels.apply({"log.level": "debug", "log.core.level": "fatal"})
    assert level_of("core.rpc") == logging.CRITICAL


def test_settings_make_no_loggers(levels: LogLevels) -> None:
    levels.apply({f"log.core.x{number}.level": "fatal" for number in range(200)})
    assert not [name for name in logging.Logger.manager.loggerDict if name.startswith("core.x")]
