"""The settings of a resource manager: good values hold, bad ones mean the default."""

import pytest

from yunishard.common.config.extra_config import (
    DEFAULTS,
    Effective,
    ExtraConfig,
    base_level,
    effective,
    logger_levels,
    read,
)


def test_without_a_word_the_defaults_hold() -> None:
    assert read({}) == ExtraConfig() == DEFAULTS


def test_all_that_is_sent_is_taken() -> None:
    assert read(
        {
            "event.trackingEnabled": "F",
            "event.requestCapacity": "5",
            "event.ringBufferCapacity": "6",
            "event.maxStreams": "7",
            "event.maxStreamsPerHost": "8",
            "event.RESTResponseSize": "9",
            "health.checkInterval": "1m30s",
        }
    ) == ExtraConfig(
        event_tracking_enabled=False,
        event_request_capacity=5,
        event_ring_buffer_capacity=6,
        event_max_streams=7,
        event_max_streams_per_host=8,
        event_rest_response_size=9,
        health_check_interval_s=90.0,
    )


@pytest.mark.parametrize("key", ["event.ringbufferCapacity", "EVENT.requestCapacity", " event.maxStreams"])
def test_keys_are_exact(key: str) -> None:
    assert read({key: "3"}) == DEFAULTS


@pytest.mark.parametrize("text", ["1", "t", "T", "TRUE", "true", "True"])
def test_the_words_for_yes(text: str) -> None:
    assert read({"event.trackingEnabled": text}).event_tracking_enabled


@pytest.mark.parametrize("text", ["0", "f", "F", "FALSE", "false", "False"])
def test_the_words_for_no(text: str) -> None:
    assert not read({"event.trackingEnabled": text}).event_tracking_enabled


@pytest.mark.parametrize("text", ["no", "fALSE", "", " false", "00"])
def test_other_words_mean_the_default(text: str) -> None:
    assert read({"event.trackingEnabled": text}).event_tracking_enabled


@pytest.mark.parametrize("text", ["-1", "+1", "1.5", "1e3", "x", "", "²", str(2**64), "9" * 30])
def test_what_is_no_count_means_the_default(text: str) -> None:
    keys = ("event.requestCapacity", "event.ringBufferCapacity", "event.maxStreams", "event.RESTResponseSize")
    assert read(dict.fromkeys((*keys, "event.maxStreamsPerHost"), text)) == DEFAULTS


def test_zero_streams_are_none_and_zero_elsewhere_means_the_default() -> None:
    keys = ("event.requestCapacity", "event.ringBufferCapacity", "event.RESTResponseSize")
    assert read(dict.fromkeys(keys, "0")) == DEFAULTS
    none = read({"event.maxStreams": "0", "event.maxStreamsPerHost": "0"})
    assert (none.event_max_streams, none.event_max_streams_per_host) == (0, 0)


@pytest.mark.parametrize(("text", "interval_s"), [("0", 0.0), ("-5s", 0.0), ("90", 30.0), ("", 30.0), ("500ms", 0.5)])
def test_the_interval_of_health_checks(text: str, interval_s: float) -> None:
    assert read({"health.checkInterval": text}).health_check_interval_s == interval_s


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("debug", -1),
        ("", 0),
        ("Info", 0),
        ("WARN", 1),
        ("warning", 1),
        ("error", 2),
        ("dpanic", 3),
        ("panic", 4),
        ("fatal", 5),
        ("-7", -1),
        ("2", 2),
        ("99", 5),
        ("loud", None),
    ],
)
def test_levels_have_names_and_numbers(text: str, level: int | None) -> None:
    assert base_level({"log.level": text}) == level
    assert logger_levels({"log.core.scheduler.level": text}) == ({} if level is None else {"core.scheduler": level})


@pytest.mark.parametrize("key", ["log.core..level", "log.core .level", "log..level", "log.core.levels"])
def test_keys_of_loggers_that_cannot_be_are_ignored(key: str) -> None:
    assert logger_levels({key: "debug"}) == {}


def test_people_see_every_setting_with_what_is_in_force() -> None:
    values = {"event.maxStreams": "0", "event.requestCapacity": "x", "log.core.level": "DEBUG", "service.x": "1"}
    shown = list(effective(values))
    assert [one.key for one in shown][:2] == ["event.trackingEnabled", "event.requestCapacity"]
    assert Effective("event.maxStreams", "0", sent=True) in shown
    assert Effective("event.requestCapacity", "1000", sent=False) in shown
    assert Effective("health.checkInterval", "30s", sent=False) in shown
    assert shown[-2:] == [Effective("log.level", "info", sent=False), Effective("log.core.level", "debug", sent=True)]
