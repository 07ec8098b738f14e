"""Messages that wait for the analysis of their text; the analyses that the broker keeps."""

import msgspec
import pytest

from tests.analyses import answer_text, answer_with
from yunishard.broker import config_validation
from yunishard.broker.config_validation import (
    CLIENT_TEXTS_MAX,
    DEFAULT_TEXT,
    LANE_MAX,
    LITTLE_S,
    READERS,
    RETRY_S,
    WAITING_MAX_S,
    AnalysisCache,
    AnalysisWanted,
    ConfigPreloader,
)
from yunishard.common.config.parse import TEXT_BYTES_MAX
from yunishard.common.messages.control_messages import ChangedFile, Hello, TextRead, VersionRead
from yunishard.common.messages.kinds import Header, Message
from yunishard.common.messages.query_messages import ChangeConfig
from yunishard.common.messages.rm_messages import Heartbeat, Leave, RegisterResourceManager, Resume, UpdateConfiguration
from yunishard.common.messages.wire import NEVER, Incoming, Outgoing, encode_body
from yunishard.common.names import FILE, RECORD

TEXT = "partitions: []\n"
OTHER = TEXT + "#"
DEFAULT = TEXT + "# the default"


class PreloaderBench:
    """A preloader, and a machine that notes what it handles: the kind and reference of each message, and what is wrong
    with its text.
    """

    def __init__(self) -> None:
        self.handled: list[str] = []
        self.reasons: list[str] = []
        self.wanted: list[str] = []
        """Texts that the machine asks for when it handles the next message."""
        self.cache = AnalysisCache()
        self.preloader = ConfigPreloader(self._handle, self.cache, lambda: DEFAULT)
        self.now = 1.0

    def _handle(self, incoming: Incoming, now: float) -> list[Outgoing]:
        if self.wanted:
            raise AnalysisWanted(self.wanted.pop())
        self.handled.append(f"{incoming.header.kind} {incoming.header.ref}".strip())
        needed = config_validation.find_text(incoming, DEFAULT)
        if needed is not None:
            analysis = self.cache.get(needed.text)
            start, end = "the configuration is refused: ", " (for now)" if analysis.is_incomplete else ""
            self.reasons += [one.message.removeprefix(start) + end for one in analysis.problems]
        return [Outgoing("peer", incoming.header, b"")]

    def receive(
        self, message: Message, ref: str = "", *, rm: str = "rm-1", source: str = "proxy", partition: str = ""
    ) -> list[Outgoing]:
        """The texts that start."""
        header = Header(kind=type(message).__name__, ref=ref, rm=rm, partition=partition, session="s")
        sends = self.preloader.handle(Incoming(source, header, encode_body(message)), self.now)
        return [one for one in sends if one.to in READERS]

    def answer(self, request: Outgoing, outcome: TextRead | None = None, used_s: float = 0.0) -> list[Outgoing]:
        """A child process answers. The texts that start."""
        found = answer_text(request, used_s) if outcome is None else answer_with(request, outcome)
        return [one for one in self.preloader.handle(found, self.now) if one.to in READERS]

    def wait(self, seconds: float) -> list[Outgoing]:
        """Time passes. The texts that start."""
        self.now += seconds
        return [one for one in self.preloader.tick(self.now) if one.to in READERS]


def register(text: str = TEXT, rm: str = "rm-1") -> RegisterResourceManager:
    return RegisterResourceManager(rm_id=rm, config=text)


@pytest.mark.parametrize(
    ("message", "source", "text"),
    [
        (register(), "proxy", TEXT),
        (register(""), "proxy", DEFAULT),
        (UpdateConfiguration(rm_id="rm-1", config=TEXT), "proxy", TEXT),
        (UpdateConfiguration(rm_id="rm-1"), "proxy", DEFAULT),
        (ChangeConfig(config=TEXT, author="kim", origin="REST"), "webservice", TEXT),
        (ChangedFile(text=TEXT), FILE, TEXT),
        (VersionRead(version=1, text=TEXT), RECORD, TEXT),
    ],
)
def test_a_message_waits_until_a_child_process_has_analysed_its_text(message: Message, source: str, text: str) -> None:
    bench = PreloaderBench()
    [request] = bench.receive(message, "call", source=source)
    assert (request.to, request.body, bench.handled) == (READERS[0], text.encode(), [])
    assert bench.answer(request) == []
    assert (bench.handled, bench.reasons) == ([f"{type(message).__name__} call"], [])
    assert bench.receive(message, "again", source=source) == []
    assert bench.handled[1:] == [f"{type(message).__name__} again"]
    assert bench.preloader.deadline == NEVER


def test_the_default_configuration_is_analysed_first() -> None:
    bench = PreloaderBench()
    bench.preloader.analyze_default(bench.now)
    assert bench.preloader.deadline == bench.now
    [request] = bench.wait(0.0)
    assert request.body == DEFAULT.encode()
    bench.answer(request)
    assert bench.handled == [DEFAULT_TEXT.header.kind]


def test_messages_of_an_rm_keep_their_order_and_those_of_others_do_not_wait() -> None:
    bench = PreloaderBench()
    [request] = bench.receive(register(), "1")
    for message, ref in ((Resume(), "2"), (Leave(), "3"), (register(OTHER), "4")):
        assert bench.receive(message, ref) == []
    bench.receive(Heartbeat(), "5")
    bench.receive(Leave(), "6", rm="rm-2")
    bench.receive(Hello(role="worker"), "7", partition="rm-1_default")
    assert bench.handled == ["Heartbeat 5", "Leave 6", "Hello 7"]
    [other] = bench.answer(request)
    assert bench.handled[3:] == ["RegisterResourceManager 1", "Resume 2", "Leave 3"]
    bench.answer(other)
    assert bench.handled[6:] == ["RegisterResourceManager 4"]


def test_rms_with_the_same_text_wait_for_one_analysis() -> None:
    bench = PreloaderBench()
    [first] = bench.receive(register(), "1")
    [_] = bench.receive(register(), "2", rm="rm-2")
    bench.answer(first)
    assert bench.handled == ["RegisterResourceManager 1", "RegisterResourceManager 2"]


def test_a_registration_that_is_repeated_on_a_new_connection_takes_the_place_of_the_first() -> None:
    bench = PreloaderBench()
    [request] = bench.receive(register(), "1")
    assert bench.receive(register(), "2") == []
    bench.answer(request)
    assert bench.handled == ["RegisterResourceManager 2"]


def test_calls_through_a_proxy_that_restarts_are_dropped() -> None:
    bench = PreloaderBench()
    [request] = bench.receive(register(), "1")
    bench.receive(Leave(), "2")
    [other] = bench.receive(register(), "3", rm="rm-2", source="another proxy")
    bench.receive(Hello(role="rmproxy"), "4", rm="")
    bench.wait(0.0)
    assert bench.handled == ["Hello 4", "Leave 2"]
    bench.answer(request)
    bench.answer(other)
    assert bench.handled[2:] == ["RegisterResourceManager 3"]


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (TextRead(problem="it takes too long"), "it takes too long"),
        (TextRead(unavailable="no process"), "no process (for now)"),
    ],
)
def test_a_text_without_an_analysis_is_refused_and_analysed_again_when_it_comes_again(
    outcome: TextRead, reason: str
) -> None:
    bench = PreloaderBench()
    [request] = bench.receive(register(), "1")
    bench.answer(request, outcome)
    assert (bench.handled, bench.reasons) == (["RegisterResourceManager 1"], [reason])
    [_] = bench.receive(register(), "2")


def test_a_text_of_the_broker_itself_is_tried_again_if_there_is_no_process() -> None:
    bench = PreloaderBench()
    [request] = bench.receive(VersionRead(version=1, text=TEXT), source=RECORD)
    assert bench.answer(request, TextRead(unavailable="no process")) == []
    assert (bench.handled, bench.preloader.deadline) == ([], bench.now + RETRY_S)
    [request] = bench.wait(RETRY_S)
    bench.answer(request)
    assert (bench.handled, bench.reasons) == (["VersionRead"], [])


def test_a_text_that_is_too_large_is_refused_without_a_process() -> None:
    bench = PreloaderBench()
    assert bench.receive(register(TEXT + "#" * TEXT_BYTES_MAX), "1") == []
    most, size = TEXT_BYTES_MAX, TEXT_BYTES_MAX + len(TEXT)
    assert bench.reasons == [f"it has {size} bytes, a configuration may have at most {most}"]


def test_a_text_that_waits_too_long_is_refused() -> None:
    bench = PreloaderBench()
    for number in range(4):
        bench.receive(register(TEXT + "#" * number, f"rm-{number}"), rm=f"rm-{number}")
    assert bench.preloader.deadline == bench.now + WAITING_MAX_S
    assert bench.wait(WAITING_MAX_S) == []
    assert len(bench.handled) == 1
    [reason] = bench.reasons
    assert "it has waited 20 s for its analysis" in reason


def test_a_user_of_a_front_end_has_a_budget_for_all_rms() -> None:
    bench = PreloaderBench()

    def change(number: int) -> list[Outgoing]:
        text = f"{TEXT}#{number}"
        return bench.receive(ChangeConfig(config=text, author="kim", origin="REST"), rm=f"rm-{number}")

    [request] = change(0)
    for number in range(1, CLIENT_TEXTS_MAX + 1):
        assert change(number) == []
    assert bench.handled == []
    change(CLIENT_TEXTS_MAX + 1)
    waiting = "4 configurations of user kim wait for their analysis already"
    assert bench.reasons == [f"{waiting}: send one at a time (for now)"]
    [request] = bench.answer(request, used_s=LITTLE_S)
    [other] = bench.receive(register(OTHER), rm="rm-9")
    assert {request.body, other.body} == {f"{TEXT}#1".encode(), OTHER.encode()}


def test_too_many_messages_of_one_rm_are_refused_or_dropped() -> None:
    bench = PreloaderBench()
    [request] = bench.receive(register(), "1")
    for _ in range(LANE_MAX - 1):
        bench.receive(Leave(), "2")
    bench.receive(Leave(), "3")
    bench.receive(UpdateConfiguration(rm_id="rm-1", config=OTHER), "4")
    assert bench.handled == ["UpdateConfiguration 4"]
    assert bench.reasons == ["64 messages about RM rm-1 wait for its last one (for now)"]
    bench.answer(request)
    assert bench.handled[1:] == ["RegisterResourceManager 1", *["Leave 2"] * (LANE_MAX - 1)]


def test_a_message_that_needs_a_further_text_waits_for_that_too() -> None:
    bench = PreloaderBench()
    [request] = bench.receive(register(), "1")
    bench.wanted.append(OTHER)
    [request] = bench.answer(request)
    assert bench.wait(0.0) == []
    assert (request.body, bench.handled) == (OTHER.encode(), [])
    bench.answer(request)
    assert bench.handled == ["RegisterResourceManager 1"]


def test_a_message_that_cannot_be_decoded_is_handled_at_once() -> None:
    bench = PreloaderBench()
    bench.preloader.handle(Incoming("proxy", Header(kind="RegisterResourceManager"), b"\xc1"), 1.0)
    assert bench.handled == ["RegisterResourceManager"]


# The cache ------------------------------------------------------------------------------------------------------------


def known_to(cache: AnalysisCache, texts: list[str]) -> list[bool]:
    return [is_known(cache, text) for text in texts]


def is_known(cache: AnalysisCache, text: str) -> bool:
    try:
        return cache.get(text) is not None
    except AnalysisWanted:
        return False


def add(cache: AnalysisCache, text: str, size: int) -> None:
    bench = PreloaderBench()
    [request] = bench.receive(register(text))
    bench.answer(request)
    cache.add(config_validation.hash_text(text.encode()), bench.cache.get(text), size)


def test_the_cache_keeps_the_analyses_of_the_latest_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_validation, "CACHE_BYTES_MAX", 100)
    cache, texts = AnalysisCache(), [TEXT, OTHER, DEFAULT]
    add(cache, TEXT, 50)
    add(cache, OTHER, 50)
    assert is_known(cache, TEXT)
    add(cache, DEFAULT, 50)
    assert known_to(cache, texts) == [True, False, True]
    add(cache, OTHER, 101)
    assert known_to(cache, texts) == [False, True, False]


def test_the_pinned_analysis_stays_until_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_validation, "CACHE_BYTES_MAX", 100)
    cache = AnalysisCache()
    assert not cache.has_pinned
    add(cache, TEXT, 50)
    cache.pin(TEXT)
    add(cache, OTHER, 100)
    assert known_to(cache, [TEXT, OTHER]) == [True, True]
    cache.pin(OTHER)
    assert known_to(cache, [TEXT, OTHER]) == [False, True]


def test_a_text_without_an_analysis_is_wanted() -> None:
    with pytest.raises(AnalysisWanted):
        AnalysisCache().get(TEXT)


def test_the_answer_of_a_process_must_be_an_analysis() -> None:
    bench = PreloaderBench()
    [request] = bench.receive(register())
    with pytest.raises(msgspec.MsgspecError):
        bench.answer(request, TextRead(analysis=b"\xc1"))
