"""Holds a Lease of Kubernetes, so that one process at a time does the work.

A process that wants the lease reads it every RETRY_S. It takes the lease if there is none, if it was released, or if it
has not changed for its duration, by the process's own monotonic clock: the clocks of two hosts are never compared. The
holder renews it, and has lost it when it could not for RENEW_S_MAX, which is before another process takes it.

A process whose identity the lease has takes it at once: it follows a process that has ended, such as the one before in
the same pod. So two processes that may run at the same time need different identities.

Not here: the work (`driver.py`). The process ends when it has lost the lease, because another one may be at work.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Final

from yunishard.kubernetes_shim.client import Body, KubernetesClient, KubernetesError
from yunishard.kubernetes_shim.objects import LEASES, Lease

DURATION_S: Final = 15
"""Seconds without renewal after which another process may take the lease."""

RENEW_S_MAX: Final = 10.0
"""Seconds without a successful renewal after which the holder ends. It is shorter than DURATION_S by more than a
request takes."""

RETRY_S: Final = 2.0
"""Seconds between two renewals, or two attempts to take the lease."""

_log = logging.getLogger("shim.lease")


class LeaseLost(Exception):
    """The lease could not be renewed in time, or another process has it."""


class Expiry:
    """Decides whether the lease has expired, by when this process saw it change. Pure."""

    def __init__(self, identity: str) -> None:
        self._identity = identity
        self._version = ""
        self._seen_at = 0.0

    def is_free(self, lease: Lease, now: float) -> bool:
        """Whether the lease may be taken, as it is at this time of a monotonic clock."""
        if lease.metadata.resource_version != self._version:
            self._version, self._seen_at = lease.metadata.resource_version, now
        is_expired = now >= self._seen_at + lease.spec.lease_duration_seconds
        return is_expired or lease.spec.holder_identity in ("", self._identity)


def build_renewal(identity: str, wall: datetime, held: Lease | None) -> Body:
    """Return the change that takes or renews a lease, if it is still as it was read."""
    time = wall.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec: dict[str, object] = {"holderIdentity": identity, "leaseDurationSeconds": DURATION_S, "renewTime": time}
    if held is None or held.spec.holder_identity != identity:
        spec["acquireTime"] = time
        spec["leaseTransitions"] = 0 if held is None else held.spec.lease_transitions + 1
    return {"metadata": {"resourceVersion": held.metadata.resource_version} if held else {}, "spec": spec}


class LeaseHolder:
    """Takes, renews and releases one lease. The client should be its own, so that it waits for no other requests."""

    def __init__(self, client: KubernetesClient, namespace: str, name: str, identity: str) -> None:
        self._client, self._namespace, self._name, self._identity = client, namespace, name, identity
        self._held: Lease | None = None

    @asynccontextmanager
    async def hold(self) -> AsyncIterator[asyncio.Task[None]]:
        """Wait until this process has the lease, and hold it within the block. The task given raises LeaseLost if it is
        lost. The end of the block releases the lease, if the API server answers.
        """
        await self._acquire()
        task = asyncio.create_task(self._keep())
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await self._release()

    async def _acquire(self) -> None:
        expiry, shown = Expiry(self._identity), ""
        while True:
            lease = await self._read()
            if lease is None or expiry.is_free(lease, asyncio.get_running_loop().time()):
                try:
                    self._held = await self._write(lease)
                except KubernetesError as error:
                    if error.status != 409:  # another process was faster
                        raise
                else:
                    _log.info("this process, %s, has the lease %s/%s", self._identity, self._namespace, self._name)
                    return
            elif lease.spec.holder_identity != shown:
                shown = lease.spec.holder_identity
                _log.info("waiting for the lease %s/%s, which %s has", self._namespace, self._name, shown)
            await asyncio.sleep(RETRY_S)

    async def _keep(self) -> None:
        """Renew the lease; a renewal counts from before it was sent."""
        loop = asyncio.get_running_loop()
        renewed_at = loop.time()
        while True:
            await asyncio.sleep(RETRY_S)
            begun = loop.time()
            try:
                async with asyncio.timeout_at(renewed_at + RENEW_S_MAX):
                    while not await self._renew():  # noqa: ASYNC110 - the API server has no event for this
                        await asyncio.sleep(RETRY_S)
            except TimeoutError:
                text = f"the lease {self._namespace}/{self._name} could not be renewed for {RENEW_S_MAX:g} s"
                raise LeaseLost(text) from None
            renewed_at = begun

    async def _renew(self) -> bool:
        """Renew the lease; return whether that worked.

        Raises:
            LeaseLost: another process has it.
        """
        try:
            self._held = await self._write(self._held)
        except KubernetesError as error:
            if error.status not in (404, 409):
                _log.warning("the lease %s/%s was not renewed: %s", self._namespace, self._name, error)
                return False
            lease = await self._read()
            if lease is None or lease.spec.holder_identity != self._identity:
                holder = lease.spec.holder_identity if lease else "no process"
                raise LeaseLost(f"{holder} has the lease {self._namespace}/{self._name}") from None
            self._held = lease  # a repetition of a request whose answer was lost
        return True

    async def _release(self) -> None:
        if self._held is None:
            return
        version = self._held.metadata.resource_version
        body: Body = {"metadata": {"resourceVersion": version}, "spec": {"holderIdentity": ""}}
        try:
            async with asyncio.timeout(RETRY_S):
                await self._client.patch(LEASES, self._namespace, self._name, body)
        except (TimeoutError, KubernetesError) as error:
            _log.info("the lease %s/%s was not released: %s", self._namespace, self._name, error)

    async def _read(self) -> Lease | None:
        try:
            return await self._client.get(LEASES, self._namespace, self._name)
        except KubernetesError as error:
            if error.status == 404:
                return None
            raise

    async def _write(self, lease: Lease | None) -> Lease:
        body = build_renewal(self._identity, datetime.now(UTC), lease)
        if lease is None:
            metadata = {"name": self._name, "namespace": self._namespace}
            return await self._client.create(LEASES, self._namespace, {**body, "metadata": metadata})
        return await self._client.patch(LEASES, self._namespace, self._name, body)
