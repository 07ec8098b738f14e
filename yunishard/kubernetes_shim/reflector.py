"""Keeps up with all objects of a kind: lists them, then watches for changes, for as long as the process runs.

The receiver gets each object as added, modified or deleted, however the changes were found out. A watch that ends
continues at its last version. When the API server no longer has the changes since then (410), or reports another
error, the reflector lists again and compares by uid and version, so an object that was replaced by another one of its
name is a deletion and a creation.

Not here: requests (`client.py`), what the objects mean (`shim.py`).
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import aclosing
from typing import Final, Generic, TypeVar

from yunishard.kubernetes_shim.actions import SERVER_ERROR
from yunishard.kubernetes_shim.client import Backoff, Change, KubernetesClient, KubernetesError, Listing
from yunishard.kubernetes_shim.objects import Kind, Object, ObjectEvent

STEADY_S: Final = 10.0
"""Seconds that a watch has to last for its end to be ordinary. One that ends earlier is followed by a pause, which
doubles each time."""

_log = logging.getLogger("kubernetes.reflector")

_O = TypeVar("_O", bound=Object)


class Known(Generic[_O]):
    """The objects of a kind as the receiver has them, and the version up to which it has all changes. Pure."""

    def __init__(self) -> None:
        self.resource_version = ""
        self._objects: dict[str, _O] = {}

    def replace(self, listing: Listing[_O]) -> Iterator[tuple[ObjectEvent, _O]]:
        """Take a list over; yield what differs: deletions first, as another object may have a deleted one's name."""
        listed = {found.metadata.uid: found for found in listing.items}
        for uid in [uid for uid in self._objects if uid not in listed]:
            yield "deleted", self._objects.pop(uid)
        for uid, found in listed.items():
            former = self._objects.get(uid)
            if former is None or former.metadata.resource_version != found.metadata.resource_version:
                self._objects[uid] = found
                yield "added" if former is None else "modified", found
        self.resource_version = listing.resource_version

    def apply(self, change: Change[_O]) -> Iterator[tuple[ObjectEvent, _O]]:
        """Take a change of a watch over; yield what it means."""
        found = change.object
        self.resource_version = found.metadata.resource_version
        if change.event == "deleted":
            self._objects.pop(found.metadata.uid, None)
            yield "deleted", found
        elif change.event != "bookmark":
            is_new = found.metadata.uid not in self._objects
            self._objects[found.metadata.uid] = found
            yield "added" if is_new else "modified", found


class Reflector(Generic[_O]):
    """Keeps one receiver up to date with the objects of a kind."""

    def __init__(
        self,
        client: KubernetesClient,
        kind: Kind[_O],
        receive: Callable[[ObjectEvent, _O], None],
        *,
        after_batch: Callable[[], None] = lambda: None,
        namespace: str = "",
        field_selector: str = "",
    ) -> None:
        """`after_batch` is called once after the objects that arrived together."""
        self.kind = kind
        self.listed = asyncio.Event()
        """Set when the receiver has had the first list."""
        self._client, self._namespace, self._field_selector = client, namespace, field_selector
        self._receive, self._after_batch = receive, after_batch
        self._known = Known[_O]()
        self._backoff = Backoff(30.0)

    async def run(self) -> None:
        """Keep up until cancelled.

        Raises:
            KubernetesError: the API server refuses the first list: credentials, rights, or an unknown kind.
        """
        loop = asyncio.get_running_loop()
        while True:
            begun = loop.time()
            try:
                if not self._known.resource_version:
                    await self._list()
                await self._watch()
            except KubernetesError as error:
                if not self.listed.is_set() and error.status < SERVER_ERROR:
                    raise
                # Without the changes since then, or with an error of unknown meaning, only a list is right.
                level = logging.DEBUG if error.status == 410 else logging.WARNING
                _log.log(level, "%s: %s; listing again", self.kind.plural, error)
                self._known.resource_version = ""
            except ConnectionError as error:
                _log.debug("%s", error)
            if loop.time() < begun + STEADY_S:
                await asyncio.sleep(self._backoff.next_pause())
            else:
                self._backoff.reset()

    async def _list(self) -> None:
        self._client.metrics.lists.labels(self.kind.plural).inc()
        listing = await self._client.list(self.kind, self._namespace, field_selector=self._field_selector)
        for event, found in self._known.replace(listing):
            self._receive(event, found)
        self.listed.set()
        self._after_batch()

    async def _watch(self) -> None:
        changes = self._client.watch(
            self.kind, self._known.resource_version, self._namespace, field_selector=self._field_selector
        )
        async with aclosing(changes):
            async for batch in changes:
                for change in batch:
                    for event, found in self._known.apply(change):
                        self._receive(event, found)
                self._after_batch()
