"""Changes of single limits in the text of a configuration."""

import difflib

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from yunishard.common.config.model import QueueConfig, root_place
from yunishard.common.config.parse import parse_with_lines
from yunishard.webservice.config_edit import EditError, LimitChange, QueueNotWrittenError, edit_queue

TEXT = """\
# the queues of the cluster
partitions:
  - name: default
    nodesortpolicy: {type: binpacking}   # packed
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: a       # the first
            resources:
              # in cores
              max:
                vcore: 10   # ten

                memory: '8Gi'
            queues:
              - {name: b, resources: {max: {vcore: 5}, guaranteed: {}}}
              - name: c
          - name: Production
            maxapplications: 3
            resources: {}
          - name: nothing
            resources:
            maxapplications:
  - name: gpu
    queues:
      - name: only
"""


def changed(path: str, partition: str = "default", *, text: str = TEXT, **change: object) -> list[str]:
    """The lines that differ, without the context."""
    after = edit_queue(text, partition, path, LimitChange(**change))  # type: ignore[arg-type]
    parse_with_lines(after)
    lines = difflib.unified_diff(text.splitlines(), after.splitlines(), lineterm="", n=0)
    return [line for line in lines if not line.startswith(("---", "+++", "@@"))]


def test_a_value_is_replaced_and_its_comment_stays() -> None:
    assert changed("root.a", maximum={"vcore": "40"}) == [
        "-                vcore: 10   # ten",
        "+                vcore: 40   # ten",
    ]


def test_a_quoted_value_stays_quoted() -> None:
    assert changed("root.a", maximum={"memory": "16Gi"})[1] == "+                memory: '16Gi'"


def test_a_value_is_added_after_the_last_one() -> None:
    assert changed("root.a", maximum={"nvidia.com/gpu": "2"}) == ["+                nvidia.com/gpu: 2"]
    assert changed("root.a", guaranteed={"vcore": "500m"}) == [
        "+              guaranteed:",
        "+                vcore: 500m",
    ]


def test_an_entry_of_a_queue_is_added_before_the_queues_below_it() -> None:
    after = edit_queue(TEXT, "default", "root.a", LimitChange(max_applications=7)).splitlines()
    assert after[after.index("            maxapplications: 7") + 1] == "            queues:"


def test_in_braces_values_are_added_in_braces() -> None:
    assert changed("root.a.b", maximum={"memory": "1Gi"})[1].endswith("{max: {vcore: 5, memory: 1Gi}, guaranteed: {}}}")
    assert changed("root.a.b", guaranteed={"vcore": "1"})[1].endswith("guaranteed: {vcore: 1}}}")
    assert changed("root.production", maximum={"vcore": "1"})[1] == "+            resources: {max: {vcore: 1}}"


def test_what_is_missing_is_written() -> None:
    assert changed("root.a.c", maximum={"vcore": "1"}) == [
        *("+                resources:", "+                  max:", "+                    vcore: 1"),
    ]
    assert changed("root.nothing", maximum={"vcore": "1"}) == ["+              max:", "+                vcore: 1"]
    assert changed("root.nothing", max_applications=4) == [
        "-            maxapplications:",
        "+            maxapplications: 4",
    ]


def test_several_values_change_at_once() -> None:
    change = {"maximum": {"vcore": "1", "memory": None}, "guaranteed": {"memory": "1Gi"}, "max_applications": 2}
    assert sorted(changed("root.a", **change)) == [
        *("+                memory: 1Gi", "+                vcore: 1   # ten", "+              guaranteed:"),
        *("+            maxapplications: 2", "-                memory: '8Gi'", "-                vcore: 10   # ten"),
    ]


def test_a_value_is_removed_with_its_line() -> None:
    assert changed("root.a", maximum={"vcore": None}) == ["-                vcore: 10   # ten"]
    assert changed("root.a.b", maximum={"vcore": None})[1].endswith("resources: {max: {}, guaranteed: {}}}")
    assert changed("root.a", maximum={"gpu": None}) == []


def test_a_value_that_is_there_already_changes_nothing() -> None:
    assert changed("ROOT.A", maximum={"vcore": "10", "memory": "8Gi"}) == []


def test_a_partition_may_leave_out_the_root() -> None:
    assert changed("root.only", "gpu", max_applications=1) == ["+        maxapplications: 1"]
    with pytest.raises(QueueNotWrittenError, match="leaves out the queue root"):
        edit_queue(TEXT, "gpu", "root", LimitChange(max_applications=1))
    assert changed("root", max_applications=9) == ["+        maxapplications: 9"]


@pytest.mark.parametrize(("partition", "path"), [("default", "root.x"), ("nosuch", "root.a"), ("default", "top.a")])
def test_a_queue_that_is_not_written_is_refused(partition: str, path: str) -> None:
    with pytest.raises(QueueNotWrittenError):
        edit_queue(TEXT, partition, path, LimitChange(max_applications=1))


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_line_ends_and_a_byte_order_mark_stay(newline: str) -> None:
    text = "\ufeff" + TEXT.replace("\n", newline).rstrip()
    after = edit_queue(text, "gpu", "root.only", LimitChange(maximum={"vcore": "1"}))
    assert after.startswith(text)
    assert after.removeprefix(text) == newline.join(
        ["", "        resources:", "          max:", "            vcore: 1"]
    )


SHARED = """\
partitions:
  - name: default
    queues:
      - name: root
        queues:
          - name: a
            resources: &shared
              max: {vcore: 1}
          - name: b
            resources: *shared
          - &c
            name: c
          - <<: *c
            name: d
          - name: e
            resources:
              max: &most {vcore: 9}
          - name: f
            resources: {max: *most}
"""


@pytest.mark.parametrize(
    ("path", "change"),
    [
        ("root.a", LimitChange(maximum={"vcore": "2"})),
        ("root.b", LimitChange(maximum={"vcore": "2"})),
        ("root.c", LimitChange(max_applications=2)),
        ("root.e", LimitChange(maximum={"vcore": "2"})),
        ("root.f", LimitChange(maximum={"vcore": "2"})),
    ],
)
def test_a_value_that_several_queues_share_is_left_to_a_person(path: str, change: LimitChange) -> None:
    with pytest.raises(EditError, match="by hand"):
        edit_queue(SHARED, "default", path, change)


def test_next_to_anchors_a_value_of_its_own_changes() -> None:
    assert changed("root.d", text=SHARED, max_applications=2) == ["+            maxapplications: 2"]


# Any configuration ----------------------------------------------------------------------------------------------------

KINDS = st.sampled_from(["vcore", "memory", "nvidia.com/gpu", "a: b", "ü#", "\x7f\n", '"\\', "\U0001f600"])
QUANTITIES = st.sampled_from(["1", "40", "2Gi", "500m", "1.5", "x y", "# no"])
AMOUNTS = st.dictionaries(KINDS, QUANTITIES, max_size=3)


def make_queue(name: str, amounts: object, most: object, children: list[object]) -> dict[str, object]:
    parts = {"name": name, "resources": amounts, "maxapplications": most, "queues": children}
    return {key: value for key, value in parts.items() if value is not None}


def queues(depth: int) -> st.SearchStrategy[list[object]]:
    resources = st.none() | st.fixed_dictionaries({}, optional={"max": st.none() | AMOUNTS, "guaranteed": AMOUNTS})
    below = st.just([]) if depth == 0 else queues(depth - 1)
    one = st.tuples(resources, st.none() | st.integers(0, 9), below)
    return st.lists(one, max_size=3).map(
        lambda found: [make_queue("abc"[at], *parts) for at, parts in enumerate(found)]
    )


@st.composite
def texts(draw: st.DrawFn) -> str:
    """A configuration as a person or a program might write it, with comments and in several styles."""
    root = make_queue("root", None, draw(st.none() | st.just(3)), draw(queues(2)))
    document = {"partitions": [{"name": "default", "queues": [root]}]}
    flow = draw(st.sampled_from([None, True, False]))
    options = {"sort_keys": draw(st.booleans()), "indent": draw(st.sampled_from([2, 4])), "allow_unicode": True}
    width = draw(st.sampled_from([20, 1000]))
    text: str = yaml.safe_dump(document, default_flow_style=flow, width=width, **options)
    if not flow and width == 1000 and draw(st.booleans()):
        text = "".join(f"{line}  # é {number}\n" for number, line in enumerate(text.splitlines()))
    return draw(st.sampled_from(["", "\ufeff", "# top\n---\n"])) + text


CHANGES = st.builds(
    LimitChange,
    maximum=st.dictionaries(KINDS, st.none() | QUANTITIES, max_size=2),
    guaranteed=st.dictionaries(KINDS, st.none() | QUANTITIES, max_size=2),
    max_applications=st.none() | st.integers(0, 99),
)


@settings(max_examples=100)
@given(text=texts(), change=CHANGES, data=st.data())
def test_exactly_the_wanted_values_of_any_configuration_change(
    text: str, change: LimitChange, data: st.DataObject
) -> None:
    places = list(root_place(parse_with_lines(text)[0].partitions[0], "").walk())
    path = data.draw(st.sampled_from([place.full_path for place in places]))
    try:
        after = edit_queue(text, "default", path, change)
    except EditError:  # values in several lines, and the first entry of a list item
        return
    old, new = settings_of(text), settings_of(after)
    assert {name: one for name, one in old.items() if name != path} == {
        name: one for name, one in new.items() if name != path
    }
    maximum, guaranteed, most = old[path]
    assert new[path] == (
        merged(maximum, change.maximum),
        merged(guaranteed, change.guaranteed),
        most if change.max_applications is None else change.max_applications,
    )
    left = [line for line in difflib.ndiff(text.splitlines(), after.splitlines()) if line.startswith("- ")]
    replaced = sum(1 for _ in change.edits())
    assert len(left) <= replaced, "each edit touches one line"


def merged(amounts: dict[str, str], change: object) -> dict[str, str]:
    assert isinstance(change, dict)
    return {kind: amount for kind, amount in {**amounts, **change}.items() if amount is not None}


def settings_of(text: str) -> dict[str, tuple[dict[str, str], dict[str, str], int]]:
    """The limits of each queue, by path."""
    partition = parse_with_lines(text)[0].partitions[0]
    return {place.full_path: limits_of(place.queue) for place in root_place(partition, "").walk()}


def limits_of(queue: QueueConfig) -> tuple[dict[str, str], dict[str, str], int]:
    return dict(queue.resources.max or {}), dict(queue.resources.guaranteed or {}), queue.max_applications
