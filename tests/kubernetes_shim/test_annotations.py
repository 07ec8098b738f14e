"""The same values as YuniKorn has of the JSON in annotations: `annotations_in_go.jsonl` has what `encoding/json` of Go
1.26 makes of texts, for the types of yunikorn-k8shim 1.8.0 and Kubernetes 1.34, and null for an error. An empty part of
a value is left out.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypedDict

import msgspec
import pytest

from yunishard.common.resources import QuantityError
from yunishard.kubernetes_shim.annotations import (
    KEY_LENGTH_MAX,
    UNKNOWN_KEYS_MAX,
    VALUES_MAX,
    decode_annotation,
    list_unknown_keys,
)
from yunishard.kubernetes_shim.objects import Quantities
from yunishard.kubernetes_shim.pods import UserInfo
from yunishard.kubernetes_shim.quantities import convert_quantities
from yunishard.kubernetes_shim.task_groups import TaskGroup

Json = dict[str, Any]

ROWS: Final = [
    json.loads(line) for line in Path(__file__).with_name("annotations_in_go.jsonl").read_text().splitlines()
]
KINDS: Final[Mapping[str, type]] = {"task-groups": list[TaskGroup], "user.info": UserInfo, "quota": Quantities}


def drop_empty(found: Json) -> Json:
    """One group or user: without what is empty, and with amounts as the core has them."""
    if "minResource" in found:
        found = {**found, "minResource": convert_quantities(found["minResource"] or {})}
    is_pointer = {"affinity"}  # empty is not the same as absent
    return {key: item for key, item in found.items() if item or (item is not None and key in is_pointer)}


def normalize(found: Any) -> Any:
    if isinstance(found, list):
        return [drop_empty(one) for one in found]
    return None if found is None else drop_empty(found)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["text"][:80])
def test_an_annotation_has_the_value_that_it_has_in_go(row: Json) -> None:
    try:
        found = normalize(msgspec.to_builtins(decode_annotation(row["text"], KINDS[row["kind"]])))
    except (msgspec.DecodeError, QuantityError):
        found = None
    assert found == normalize(row["go"])


class Letters(TypedDict, total=False):
    a: str
    i: str
    k: str
    s: str
    z: str


def test_besides_capitals_only_two_characters_are_equal_to_a_letter() -> None:
    others = [chr(code) for code in range(128, sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
    found: Letters = {}
    for start in range(0, len(others), VALUES_MAX):
        text = json.dumps({one: one for one in others[start : start + VALUES_MAX]})
        found.update(decode_annotation(text, Letters))
    assert found == {"k": "\N{KELVIN SIGN}", "s": "\N{LATIN SMALL LETTER LONG S}"}


def test_an_annotation_with_too_many_values_is_refused() -> None:
    assert len(decode_annotation(json.dumps(["a"] * VALUES_MAX), list[str])) == VALUES_MAX
    with pytest.raises(msgspec.DecodeError, match=f"there are more than {VALUES_MAX} values"):
        decode_annotation(json.dumps({"groups": ["a"] * VALUES_MAX}), UserInfo)


def test_few_unknown_keys_are_named_and_shortened() -> None:
    found = list_unknown_keys(json.dumps({"x" * 100 + str(number): 0 for number in range(10)}), UserInfo)
    assert len(found) == UNKNOWN_KEYS_MAX + 1
    assert found[0] == f"'{'x' * KEY_LENGTH_MAX}' is ignored: known are user, groups, pod"
    assert found[-1] == "and 7 more"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[{"tolerations": [{"key": 1}]}]', "[0].tolerations[0].key: Expected `str`, got `int`"),
        ('{"name": "a"}', "the value: Expected `array`, got `object`"),
        ("[" * 100_000, "the JSON is nested too deeply"),
        ("[NaN]", "NaN is no JSON"),
    ],
)
def test_an_error_names_its_place(text: str, problem: str) -> None:
    with pytest.raises(msgspec.DecodeError) as caught:
        decode_annotation(text, list[TaskGroup])
    assert str(caught.value) == problem
