"""What a text says by itself, here or in another process."""

import msgspec
import pytest

from broker.config_validation import ANALYSES_MAX, AnalysisCache, analyze
from common.config.validation import load

GOOD = "partitions:\n- name: default\n  queues:\n  - name: root\n    queues:\n    - name: {}\n"
TWO = """\
partitions:
- name: default
  placementrules:
  - name: recovery
  queues:
  - name: root
    queues:
    - name: a
      queues:
      - name: x
    - name: b
      submitacl: bob  dev
- name: gpu
  queues:
  - name: root
    queues:
    - name: b
      queues:
      - name: x
"""


def test_a_text_that_makes_sense_has_a_configuration_in_its_normal_form() -> None:
    analysis = analyze(GOOD.format("a"))
    assert analysis.configuration == load(GOOD.format("a"))
    assert not analysis.problems


def test_of_a_text_that_makes_none_only_the_problems_are_known() -> None:
    analysis = analyze("partitions: 1")
    assert (analysis.configuration, [one.line for one in analysis.problems]) == (None, [1])


def test_everything_is_looked_at_with_the_lines_of_the_text() -> None:
    analysis = analyze(TWO)
    assert [[one.line for one in found] for found in analysis.building] == [[12], []]
    assert [[one.line for one in found] for found in analysis.rules] == [[4], []]
    assert [one.line for one in analysis.hierarchy] == [19]


@pytest.mark.parametrize("text", [GOOD.format("a"), TWO, "partitions: 1"])
def test_what_another_process_says_is_the_same(text: str) -> None:
    cache = AnalysisCache()
    cache.add_encoded(text, msgspec.msgpack.encode(analyze(text)))
    assert cache.get(text) == analyze(text)
    assert not cache.misses


def test_a_text_is_read_once_and_only_the_latest_are_remembered() -> None:
    cache = AnalysisCache()
    texts = [GOOD.format(f"q{number}") for number in range(ANALYSES_MAX + 1)]
    for text in (*texts, texts[-1]):
        cache.get(text)
    assert cache.misses == len(texts)
    assert [text in cache for text in texts] == [False, *[True] * ANALYSES_MAX]


def test_what_is_no_judgement_is_not_learned() -> None:
    cache = AnalysisCache()
    with pytest.raises(msgspec.MsgspecError):
        cache.add_encoded("a text", b"")
    assert "a text" not in cache
