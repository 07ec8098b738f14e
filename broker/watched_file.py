"""The watched file with the default configuration, as an endpoint of the broker's wire.

It is polled for changes, and changes made elsewhere are written back to it, both in a thread. The machine receives
`ChangedFile` and sends `WriteFile`. The file is replaced in one step, so no reader sees half of it, and the previous
text is kept beside it in a file with the suffix `.previous`. Rejected: inotify, which needs a library and misses the
updates of mounted volumes (Kubernetes ConfigMaps among them). Not here: what a change of the file means
(`config_updates.py`).
"""

import asyncio
import logging
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from yunishard.common.config.model import compute_checksum
from yunishard.common.config.parse import TEXT_BYTES_MAX
from yunishard.common.messages.control_messages import ChangedFile, WriteFile
from yunishard.common.messages.kinds import Header
from yunishard.common.messages.wire import Incoming, Outgoing, decode_body, encode_body
from yunishard.common.names import FILE
from yunishard.common.process.folders import read_stamp, sync_path
from yunishard.common.transport.inbox import ThreadEndpoint

POLL_INTERVAL_S: Final = 0.5
"""Seconds between two polls. A change counts once two polls in a row find the same, as the writer may not have
finished.
"""

NEW_FILE_MODE: Final = 0o644
"""Mode of a new file, before the umask."""


_log = logging.getLogger("core.config")


class WatchedFile(ThreadEndpoint):
    """A file that cannot be read at first has no text yet: `yunishard up` refuses it, but a broker that restarts has to
    run without it.
    """

    def __init__(self, path: Path, *, wake: Callable[[], None]) -> None:
        super().__init__("watched file", wake=wake)
        self.path = path
        self._timer: asyncio.TimerHandle | None = None
        self._last_warning = ""
        self._stamp: tuple[int, ...] | None = None
        self.text = ""
        with suppress(OSError):
            stamp = read_stamp(self.path)
            self.text = self._read()
            self._stamp = stamp
        self._seen = self._stamp

    def watch(self) -> None:
        """Poll the file from now on, at regular intervals; needs a running loop."""
        if not self.queued:  # a disk that does not answer is asked once
            self.run(self.poll)
        self._timer = asyncio.get_running_loop().call_later(POLL_INTERVAL_S, self.watch)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().close()

    def send(self, message: Outgoing) -> None:
        self.run(partial(self.write_back, decode_body(WriteFile, message.body)))

    def write_back(self, wanted: WriteFile) -> Incoming | None:
        """Write a text in place of the one that it changes. If that fails the change stays in force, as it is in the
        record. A missing file is created again.
        """
        try:
            gone = not self.path.exists()
            if not gone and compute_checksum(self._read()) != wanted.replaces:
                _log.warning("%s has been edited since and is not overwritten: its present text counts", self.path)
                return None
            self._write(wanted.text, gone=gone)
        except OSError as error:
            _log.warning(
                "%s cannot be written: %s; the change is in force and recorded, but not in the file",
                self.path,
                error.strerror or error,
            )
            return None
        what = "was missing and is written again" if gone else f"written, the previous text is in {self._previous}"
        _log.info("%s %s", self.path, what)
        return self.poll() or self.poll()  # it is new, and then complete

    @property
    def _previous(self) -> Path:
        return self.path.with_name(self.path.name + ".previous")

    def _write(self, text: str, *, gone: bool) -> None:
        target = self.path.resolve()  # keeps a symbolic link
        new = target.with_name(f".{target.name}.new")
        new.unlink(missing_ok=True)
        try:
            # Private until it has the mode of the file that it replaces; never follows a link.
            mode = NEW_FILE_MODE if gone else 0o600
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
            with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            if not gone:
                shutil.copymode(target, new)
                shutil.copy2(target, self._previous)
            new.replace(target)
        finally:
            new.unlink(missing_ok=True)
        sync_path(target.parent)

    def poll(self) -> Incoming | None:
        """The change of the text, once it is complete."""
        try:
            stamp = read_stamp(self.path)
            if stamp == self._stamp:
                self._last_warning = ""
            if stamp == self._stamp or stamp != self._seen:
                self._seen = stamp
                return None
            text = self._read()
            if stamp != read_stamp(self.path):
                return None
        except OSError as error:
            warning = f"cannot be read: {error.strerror or error}"
            if warning != self._last_warning:  # log each reason once
                self._last_warning = warning
                _log.warning("%s %s; the configuration in force stays", self.path, warning)
            return None
        self._stamp, self._last_warning = stamp, ""
        if text == self.text:
            return None
        self.text = text
        return Incoming(FILE, Header(kind="ChangedFile"), encode_body(ChangedFile(text=text)))

    def _read(self) -> str:
        if self.path.stat().st_size > TEXT_BYTES_MAX:
            raise OSError(f"has more than {TEXT_BYTES_MAX} bytes")
        try:
            return self.path.read_bytes().decode()
        except UnicodeDecodeError as error:
            raise OSError(f"is not UTF-8: {error}") from None
