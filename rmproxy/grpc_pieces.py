"""Messages of any size in pieces that everybody on the way takes: requests by items, responses by bytes.

A request may be longer inside than it was on the wire, for there the names of its fields are written out; and a gRPC
client refuses more than 4 MiB unless it was told otherwise, which would end the stream. Items keep their order, and one
alone is never cut.

Not here: the limit of what is taken from outside at all (`grpc_port.py`).
"""

from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

from common.rm_messages import (
    AllocationReleasesRequest,
    AllocationRequest,
    AllocationResponse,
    ApplicationRequest,
    ApplicationResponse,
    NodeRequest,
    NodeResponse,
)
from rmproxy import convert

REQUEST_ITEMS_MAX: Final = 10_000
"""Items in a request: the names of their fields then take no more than 4 MiB."""

RESPONSE_BYTES_MAX: Final = 3 << 20
"""Of an encoded response that has more than one entry."""

Update = NodeRequest | ApplicationRequest | AllocationRequest
Response = NodeResponse | ApplicationResponse | AllocationResponse
_T = TypeVar("_T")


def requests(update: Update) -> Iterator[Update]:
    """The update, in several if it has too many items for one; what is handled first still is."""
    match update:
        case NodeRequest(nodes=nodes) if len(nodes) > REQUEST_ITEMS_MAX:
            yield from (NodeRequest(nodes=part, rm_id=update.rm_id) for part in _parts(nodes))
        case ApplicationRequest(new=new, remove=remove) if len(new) + len(remove) > REQUEST_ITEMS_MAX:
            yield from (ApplicationRequest(new=part, rm_id=update.rm_id) for part in _parts(new))
            yield from (ApplicationRequest(remove=part, rm_id=update.rm_id) for part in _parts(remove))
        case AllocationRequest(allocations=asks) if (
            len(asks) + len(update.releases.allocations_to_release) > REQUEST_ITEMS_MAX
        ):
            yield from (AllocationRequest(allocations=part, rm_id=update.rm_id) for part in _parts(asks))
            for part in _parts(update.releases.allocations_to_release):
                releases = AllocationReleasesRequest(allocations_to_release=part)
                yield AllocationRequest(releases=releases, rm_id=update.rm_id)
        case _:
            yield update


def responses(news: Response) -> Iterator[bytes]:
    """The encoded response, in several if it is too large for one."""
    encoded = convert.response_to(news)
    if len(encoded) <= RESPONSE_BYTES_MAX:
        yield encoded
        return
    middle = _entries(news) // 2
    if not middle:
        yield encoded
        return
    for half in _halves(news, middle):
        yield from responses(half)


def _parts(items: Sequence[_T]) -> Iterator[list[_T]]:
    for start in range(0, len(items), REQUEST_ITEMS_MAX):
        yield list(items[start : start + REQUEST_ITEMS_MAX])


def _entries(news: Response) -> int:
    match news:
        case NodeResponse():
            return len(news.accepted) + len(news.rejected)
        case ApplicationResponse():
            return len(news.accepted) + len(news.rejected) + len(news.updated)
        case AllocationResponse():
            return len(news.new) + len(news.released) + len(news.rejected_allocations)


def _halves(news: Response, middle: int) -> tuple[Response, Response]:
    """The first so many entries, and the others."""
    match news:
        case NodeResponse(accepted=accepted, rejected=rejected):
            a, r = _cuts(middle, accepted, rejected)
            return (
                NodeResponse(accepted=accepted[:a], rejected=rejected[:r]),
                NodeResponse(accepted=accepted[a:], rejected=rejected[r:]),
            )
        case ApplicationResponse(accepted=accepted, rejected=rejected, updated=updated):
            a, r, u = _cuts(middle, accepted, rejected, updated)
            return (
                ApplicationResponse(accepted=accepted[:a], rejected=rejected[:r], updated=updated[:u]),
                ApplicationResponse(accepted=accepted[a:], rejected=rejected[r:], updated=updated[u:]),
            )
        case AllocationResponse(new=new, released=released, rejected_allocations=rejected):
            n, g, r = _cuts(middle, new, released, rejected)
            return (
                AllocationResponse(new=new[:n], released=released[:g], rejected_allocations=rejected[:r]),
                AllocationResponse(new=new[n:], released=released[g:], rejected_allocations=rejected[r:]),
            )


def _cuts(middle: int, *lists: Sequence[object]) -> list[int]:
    """Where to cut each list so that there are `middle` entries before the cuts, those of the first lists first."""
    cuts: list[int] = []
    for one in lists:
        cuts.append(min(len(one), middle - sum(cuts)))
    return cuts
