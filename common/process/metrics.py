"""Metrics as plain values: what state machines give, and what each process sends as a JSON list to the web service.

Families of one name from several processes become one on the page, so all processes give them the same kind and help.

Not here: the metrics of each process (its `metrics.py`), its registry (`process_metrics.py`), and the page
(`yunishard/webservice/metrics.py`).
"""

from bisect import bisect_left
from collections.abc import Iterable
from typing import Final, Literal

from msgspec import DecodeError, Raw, Struct
from msgspec.json import Decoder, Encoder

BOUNDS_S: Final = (0.0001, 0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
"""The reference's buckets, in seconds although the names of its families end in milliseconds."""


class Histogram:
    """Values that a state machine observed, by bucket. `counts` are not cumulative: each counts values up to its bound
    and above the one before, the last counts values above all bounds.
    """

    __slots__ = ("bounds", "counts", "sum_s")

    def __init__(self, bounds: tuple[float, ...] = BOUNDS_S) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum_s = 0.0

    def observe(self, seconds: float) -> None:
        """Add a value."""
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.sum_s += seconds


# Metric families ------------------------------------------------------------------------------------------------------

Sample = tuple[tuple[str, ...], float]
"""Label values, in the order of the family's labels, and the value."""

Distribution = tuple[tuple[str, ...], list[int], float]
"""Label values, the counts of a `Histogram`, and the sum of its values."""


class Family(Struct, frozen=True, omit_defaults=True):
    """Samples of one name. A histogram has bounds and distributions instead of samples."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    samples: list[Sample] = []
    bounds: tuple[float, ...] = ()
    distributions: list[Distribution] = []


class EncodedFamily(Struct, frozen=True, omit_defaults=True):
    """A family with encoded samples, for thousands of samples of which few have changed."""

    name: str
    kind: Literal["counter", "gauge"]
    help: str
    labels: tuple[str, ...]
    samples: Raw


_encoder: Final = Encoder()
_decoder: Final = Decoder(list[Family])


def encode_families(found: Iterable[Family | EncodedFamily]) -> bytes:
    """Encode families for another process."""
    return _encoder.encode(list(found))


def encode_samples(samples: list[Sample]) -> bytes:
    """Encode samples, to be joined with others."""
    return _encoder.encode(samples)[1:-1]


def join_samples(pieces: Iterable[bytes]) -> Raw:
    """Join encoded samples."""
    return Raw(b"[" + b",".join(filter(None, pieces)) + b"]")


def decode_families(body: bytes) -> list[Family]:
    """Decode the families of a process.

    Raises:
        ValueError: the body holds something else.
    """
    found = _decoder.decode(body)
    for family in found:
        labelled = [sample[0] for sample in family.samples] + [one[0] for one in family.distributions]
        if any(len(values) != len(family.labels) for values in labelled):
            raise DecodeError(f"{family.name}: a sample has not one value for each label")
        if any(len(counts) != len(family.bounds) + 1 for _, counts, _ in family.distributions):
            raise DecodeError(f"{family.name}: a distribution has not one count for each bucket")
    return found


def counter(name: str, what: str, labels: tuple[str, ...], samples: Iterable[Sample]) -> Family:
    """Build a family whose values only grow until its process restarts."""
    return Family(name, "counter", what, labels, list(samples))


def gauge(name: str, what: str, labels: tuple[str, ...], samples: Iterable[Sample]) -> Family:
    """Build a family of present values."""
    return Family(name, "gauge", what, labels, list(samples))


def distribution(
    name: str, what: str, labels: tuple[str, ...], observed: Iterable[tuple[tuple[str, ...], Histogram]]
) -> Family:
    """Build a histogram family; all histograms have the same bounds."""
    listed = list(observed)
    bounds = listed[0][1].bounds if listed else ()
    found = [(values, one.counts, one.sum_s) for values, one in listed]
    return Family(name, "histogram", what, labels, [], bounds, found)


# Metrics that several processes report about a process ----------------------------------------------------------------

PROCESS_LABELS: Final = ("process", "partition")
"""Labels of metrics about a process; the partition is that of a worker."""

PROCESS_UP: Final = (
    "Whether the process answers, or sends its metrics; if not, its other series are missing. Investigate 0 for more "
    "than a minute: a process that ended restarts within seconds."
)
"""The help text of `yunishard_process_up`."""


def report_process_up(process: str, partition: str = "", *, is_up: bool = True) -> Family:
    """Whether a process answers: the process that asks it reports so if it does not."""
    return gauge("yunishard_process_up", PROCESS_UP, PROCESS_LABELS, [((process, partition), int(is_up))])


def report_journal_stuck(partition: str, *, is_stuck: bool) -> Family:
    """Whether a journal cannot be written: its worker reports so, or the broker if the worker cannot start."""
    return gauge(
        "yunishard_journal_stuck",
        "Whether the journal cannot be written, so that no result is sent, or the worker cannot start because it "
        "cannot use its journal. Investigate 1: the disk is full or broken.",
        ("partition",),
        [((partition,), int(is_stuck))],
    )
