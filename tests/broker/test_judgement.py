"""What a text says by itself, here or in another process."""

import msgspec
import pytest

from broker.judgement import TEXTS_KEPT, Understanding, encoded, judged
from common.config.check import load

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
    judgement = judged(GOOD.format("a"))
    assert judgement.configuration == load(GOOD.format("a"))
    assert not judgement.problems


def test_of_a_text_that_makes_none_only_the_problems_are_known() -> None:
    judgement = judged("partitions: 1")
    assert (judgement.configuration, [one.line for one in judgement.problems]) == (None, [1])


def test_everything_is_looked_at_with_the_lines_of_the_text() -> None:
    judgement = judged(TWO)
    assert [[one.line for one in found] for found in judgement.building] == [[12], []]
    assert [[one.line for one in found] for found in judgement.rules] == [[4], []]
    assert [one.line for one in judgement.hierarchy] == [19]


@pytest.mark.parametrize("text", [GOOD.format("a"), TWO, "partitions: 1"])
def test_what_another_process_says_is_the_same(text: str) -> None:
    understanding = Understanding()
    understanding.learn(text, encoded(judged(text)))
    assert understanding(text) == judged(text)
    assert not understanding.read


def test_a_text_is_read_once_and_only_the_latest_are_remembered() -> None:
    understanding = Understanding()
    texts = [GOOD.format(f"q{number}") for number in range(TEXTS_KEPT + 1)]
    for text in (*texts, texts[-1]):
        understanding(text)
    assert understanding.read == len(texts)
    assert [understanding.knows(text) for text in texts] == [False, *[True] * TEXTS_KEPT]


def test_what_is_no_judgement_is_not_learned() -> None:
    understanding = Understanding()
    with pytest.raises(msgspec.MsgspecError):
        understanding.learn("a text", b"")
    assert not understanding.knows("a text")
