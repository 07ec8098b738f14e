"""The analysis of a configuration text."""

import msgspec
import pytest
from msgspec.structs import replace

from yunishard.broker.config_analysis import ConfigAnalysis, analyze
from yunishard.common.config.model import PartitionConfig
from yunishard.common.config.validation import load

GOOD = "partitions:\n- name: default\n  queues:\n  - name: root\n    queues:\n    - name: a\n"
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


def test_a_valid_text_has_the_encoded_partitions_in_normal_form() -> None:
    [partition] = analyze(GOOD).partitions
    [expected] = replace(load(GOOD), checksum="").partitions
    assert partition.name == "default"
    assert msgspec.msgpack.decode(partition.config, type=PartitionConfig) == expected


def test_an_invalid_text_has_only_problems() -> None:
    analysis = analyze("partitions: 1")
    assert (analysis.partitions, [one.line for one in analysis.problems]) == ((), [1])


def test_problems_of_each_kind_have_the_lines_of_the_text() -> None:
    analysis = analyze(TWO)
    assert [[one.line for one in each.building] for each in analysis.partitions] == [[12], []]
    assert [[one.line for one in each.rules] for each in analysis.partitions] == [[4], []]
    assert [one.line for one in analysis.hierarchy] == [19]


@pytest.mark.parametrize("text", [GOOD, TWO, "partitions: 1"])
def test_a_decoded_analysis_is_the_one_that_was_encoded(text: str) -> None:
    encoded = msgspec.msgpack.encode(analyze(text))
    assert msgspec.msgpack.encode(msgspec.msgpack.decode(encoded, type=ConfigAnalysis)) == encoded
