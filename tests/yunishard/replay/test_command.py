"""The options of `yunishard replay`: their defaults and their bounds."""

import argparse

import pytest

from yunishard.workloads.replay.run import add_replay_arguments, run_replay
from yunishard.workloads.replay.workload import TASKS_MAX


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_replay_arguments(parser)
    return parser.parse_args(words)


def test_a_file_is_all_that_is_needed() -> None:
    args = parsed("a.swf")
    assert (args.speed, args.partitions, args.nodes, args.strict) == (None, 6, None, False)
    assert args.address == "tcp://127.0.0.1:9090"
    assert parsed("a.swf", "--local").address == ""


@pytest.mark.parametrize(
    "words",
    [
        ("--speed", "0"),
        ("--speed", "nan"),
        ("--speed", "fast"),
        ("--partitions", "0"),
        ("--partitions", "65"),
        ("--nodes", "-1"),
        ("--load", "inf"),
        ("--rm-id", "a b"),
        ("--local", "--connect", "tcp://a:1"),
        ("--connect", "tcp://a:1,"),
    ],
)
def test_what_makes_no_sense_is_refused(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parsed("a.swf", *words)
    assert ended.value.code == 2
    assert words[0] in capsys.readouterr().err


def test_the_help_text_tells_the_bound_on_asks() -> None:
    assert f"at most {TASKS_MAX} asks" in (run_replay.__doc__ or "")


def test_the_help_text_tells_what_waits_depend_on() -> None:
    text = run_replay.__doc__ or ""
    assert "depend on --speed and on how busy" in text
    assert "yunishard simulate" in text
