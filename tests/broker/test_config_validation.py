"""Analysis of configurations: cache, preloading."""

import msgspec
import pytest
from msgspec.structs import replace

from broker import config_validation
from broker.config_validation import (
    ANALYSES_MAX,
    PRELOAD_BYTES_MIN,
    WAITING_MAX,
    AnalysisCache,
    ConfigAnalysis,
    ConfigPreloader,
    analyze,
)
from common.config.validation import load
from common.control_messages import ChangedFile, Hello
from common.messages import Header, Message
from common.names import READER
from common.query_messages import ChangeConfig
from common.rm_messages import Heartbeat, Leave, RegisterResourceManager, UpdateConfiguration
from common.wire import Incoming, Outgoing, encode_body

SMALL = "partitions: []\n"
LARGE = SMALL + "#" * PRELOAD_BYTES_MIN
LARGER = LARGE + "#"


class Notebook:
    """A machine that writes down what it hears."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def handle(self, incoming: Incoming, now: float) -> list[Outgoing]:
        self.heard.append(f"{incoming.header.kind} {incoming.header.ref}")
        return [Outgoing("peer", incoming.header, b"")]


class Scene:
    def __init__(self) -> None:
        self.notebook, self.cache = Notebook(), AnalysisCache()
        self.foresight = ConfigPreloader(self.notebook.handle, self.cache)

    def hears(self, message: Message, ref: str = "", *, partition: str = "") -> list[Outgoing]:
        header = Header(kind=type(message).__name__, ref=ref, partition=partition)
        return self.foresight.handle(Incoming("peer", header, encode_body(message)), 1.0)

    def read(self, number: int, judgement: bytes) -> list[Outgoing]:
        return self.foresight.handle(Incoming(READER, Header(kind="TextRead", ref=str(number)), judgement), 1.0)


JUDGEMENT = msgspec.msgpack.encode(analyze(LARGE))


@pytest.mark.parametrize(
    "message",
    [
        RegisterResourceManager(rm_id="rm-1", config=LARGE),
        UpdateConfiguration(rm_id="rm-1", config=LARGE),
        ChangeConfig(config=LARGE, author="kim", origin="REST"),
        ChangedFile(text=LARGE),
    ],
)
def test_a_large_text_goes_to_the_reader_and_the_message_on_when_it_is_known(message: Message) -> None:
    scene = Scene()
    [asked] = scene.hears(message, "call")
    assert (asked.to, asked.body, scene.notebook.heard) == (READER, LARGE.encode(), [])
    assert [one.to for one in scene.read(1, JUDGEMENT)] == ["peer"]
    assert scene.notebook.heard == [f"{type(message).__name__} call"]
    assert LARGE in scene.cache


def test_small_and_known_texts_do_not_wait() -> None:
    scene = Scene()
    scene.cache.add_encoded(LARGE, JUDGEMENT)
    scene.hears(ChangedFile(text=SMALL), "small")
    scene.hears(ChangedFile(text=LARGE), "known")
    assert scene.notebook.heard == ["ChangedFile small", "ChangedFile known"]


def test_what_comes_meanwhile_passes_by_or_keeps_its_order() -> None:
    scene = Scene()
    scene.hears(RegisterResourceManager(rm_id="rm-1", config=LARGE), "1")
    scene.hears(Leave(), "2")
    scene.hears(Heartbeat(), "3")
    scene.hears(Hello(role="worker"), "4", partition="rm-1_default")
    scene.hears(Hello(role="rmproxy"), "5")
    assert scene.notebook.heard == ["Heartbeat 3", "Hello 4"]
    scene.read(1, JUDGEMENT)
    assert scene.notebook.heard[2:] == ["RegisterResourceManager 1", "Leave 2", "Hello 5"]
    scene.hears(Leave(), "6")
    assert scene.notebook.heard[5:] == ["Leave 6"]


def test_the_next_large_text_in_the_line_is_read_in_its_turn() -> None:
    scene = Scene()
    for ref, text in (("1", LARGE), ("2", LARGE), ("3", LARGER), ("4", SMALL)):
        scene.hears(ChangedFile(text=text), ref)
    *_, asked = scene.read(1, JUDGEMENT)
    assert (asked.to, asked.body) == (READER, LARGER.encode())
    assert scene.notebook.heard == ["ChangedFile 1", "ChangedFile 2"]
    scene.read(2, msgspec.msgpack.encode(analyze(LARGER)))
    assert scene.notebook.heard[2:] == ["ChangedFile 3", "ChangedFile 4"]


def test_without_an_answer_of_the_reader_the_machine_reads_by_itself() -> None:
    scene = Scene()
    scene.hears(ChangedFile(text=LARGE), "1")
    scene.read(1, b"")
    assert scene.notebook.heard == ["ChangedFile 1"]
    assert LARGE not in scene.cache


def test_an_answer_that_nobody_waits_for_changes_nothing() -> None:
    scene = Scene()
    assert scene.read(1, JUDGEMENT) == []
    scene.hears(ChangedFile(text=LARGE), "1")
    assert scene.read(2, JUDGEMENT) == []
    assert scene.notebook.heard == []


def test_when_too_many_wait_nobody_does() -> None:
    scene = Scene()
    scene.hears(ChangedFile(text=LARGE), "large")
    for _ in range(WAITING_MAX):
        scene.hears(Leave())
    assert len(scene.notebook.heard) == WAITING_MAX + 1
    assert scene.notebook.heard[0] == "ChangedFile large"
    assert scene.read(1, JUDGEMENT) == []


def test_what_cannot_be_read_as_a_message_is_the_machines() -> None:
    scene = Scene()
    scene.foresight.handle(Incoming("peer", Header(kind="ChangedFile"), b"\xc1" * PRELOAD_BYTES_MIN), 1.0)
    assert scene.notebook.heard == ["ChangedFile "]


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
    assert analysis.configuration == replace(load(GOOD.format("a")), checksum="")
    assert not analysis.problems


def test_of_a_text_that_makes_none_only_the_problems_are_known() -> None:
    analysis = analyze("partitions: 1")
    assert (analysis.configuration, [one.line for one in analysis.problems]) == (None, [1])


def test_everything_is_looked_at_with_the_lines_of_the_text() -> None:
    analysis = analyze(TWO)
    assert [[one.line for one in found] for found in analysis.building] == [[12], []]
    assert [[one.line for one in found] for found in analysis.rules] == [[4], []]
    assert [one.line for one in analysis.hierarchy] == [19]


def count_analyses(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that are analysed from now on."""
    texts: list[str] = []

    def counting(text: str) -> ConfigAnalysis:
        texts.append(text)
        return analyze(text)

    monkeypatch.setattr(config_validation, "analyze", counting)
    return texts


@pytest.mark.parametrize("text", [GOOD.format("a"), TWO, "partitions: 1"])
def test_what_another_process_says_is_the_same(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, expected = AnalysisCache(), analyze(text)
    cache.add_encoded(text, msgspec.msgpack.encode(expected))
    monkeypatch.setattr(config_validation, "analyze", None)
    assert cache.get(text) == expected


def test_a_text_is_read_once_and_only_the_latest_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    cache, analysed = AnalysisCache(), count_analyses(monkeypatch)
    texts = [GOOD.format(f"q{number}") for number in range(ANALYSES_MAX + 1)]
    for text in (*texts, texts[-1]):
        cache.get(text)
    assert analysed == texts
    assert [text in cache for text in texts] == [False, *[True] * ANALYSES_MAX]


def test_what_is_no_judgement_is_not_learned() -> None:
    cache = AnalysisCache()
    with pytest.raises(msgspec.MsgspecError):
        cache.add_encoded("a text", b"")
    assert "a text" not in cache
