"""The file of queues that the core offers: watched for changes, and written when a change came by another way.

An endpoint of the broker's wire: the machine hears `ChangedFile` and sends `WriteFile`. The file is replaced in one
step, so no reader ever sees half of it, and the one before is kept beside it with `.previous` at the end of its name.

Rejected: inotify, which needs a library and misses what a mounted volume (a Kubernetes ConfigMap among them) does.
Not here: what a change means (`offer.py`).
"""

import asyncio
import logging
import os
import shutil
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from common.config.checksum import checksum_of
from common.config.nodes import TEXT_BYTES_MAX
from common.control_messages import ChangedFile, WriteFile
from common.machine import Delivery, Send, send
from common.messages import Header
from common.names import BROKER, FILE
from common.wire import decoded

LOOK_EVERY_S: Final = 0.5
"""Between two looks. A change counts once two looks in a row saw the same, for somebody may still be writing."""

NEW_FILE_MODE: Final = 0o644
"""Of a file that is made anew, without what the umask takes away."""

_Stamp = tuple[int, int, int, int]

_log = logging.getLogger("core.config")


class WatchedFile:
    """The file by its path. One that cannot be read to begin with has no text yet: `yunishard up` refuses such a file,
    but a broker that is started again has to go on.
    """

    def __init__(self, path: Path, *, wake: Callable[[], None]) -> None:
        self.path = path
        self._wake = wake
        self._changes: deque[Delivery] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._complaint = ""
        self._stamp: _Stamp | None = None
        self.text = ""
        with suppress(OSError):
            stamp = self._present_stamp()
            self.text = self._read()
            self._stamp = stamp
        self._seen = self._stamp

    def watch(self) -> None:
        """Look now and then; needs a running loop."""
        self._timer = asyncio.get_running_loop().call_later(LOOK_EVERY_S, self._look_again)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def receive(self) -> Delivery | None:
        return self._changes.popleft() if self._changes else None

    def send(self, message: Send) -> None:
        """Write the text, in place of the one that it was made from. If that fails the change stays in force all the
        same: the record has it. A file that is gone says nothing against it, and is made anew.
        """
        wanted = decoded(WriteFile, message.body)
        try:
            gone = not self.path.exists()
            if not gone and checksum_of(self._read()) != wanted.replaces:
                _log.warning("%s has been edited since, and is not overwritten: what it says now counts", self.path)
                return
            self._write(wanted.text, gone=gone)
        except OSError as error:
            _log.warning(
                "%s cannot be written: %s; the change is in force and recorded, the file says something else",
                self.path,
                error.strerror or error,
            )
            return
        if gone:
            _log.info("%s was gone and is written anew", self.path)
        else:
            _log.info("%s written, the text before is in %s", self.path, self._previous)
        for _ in ("new", "complete"):
            self.look()

    @property
    def _previous(self) -> Path:
        return self.path.with_name(self.path.name + ".previous")

    def _write(self, text: str, *, gone: bool) -> None:
        target = self.path.resolve()  # a link stays one
        new = target.with_name(f".{target.name}.new")
        new.unlink(missing_ok=True)
        try:
            # As private as can be, until it has the mode of what it replaces, and never what a link points to.
            mode = NEW_FILE_MODE if gone else 0o600
            opened = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
            with os.fdopen(opened, "w", encoding="utf-8", newline="") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            if not gone:
                shutil.copymode(target, new)
                shutil.copy2(target, self._previous)
            new.replace(target)
        finally:
            new.unlink(missing_ok=True)
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _look_again(self) -> None:
        self.look()
        self.watch()

    def look(self) -> None:
        """Notice a change that is complete."""
        try:
            stamp = self._present_stamp()
            if stamp == self._stamp:
                self._complaint = ""
            if stamp == self._stamp or stamp != self._seen:
                self._seen = stamp
                return
            text = self._read()
            if stamp != self._present_stamp():
                return
        except OSError as error:
            self._complain(f"cannot be read: {error.strerror or error}")
            return
        self._stamp, self._complaint = stamp, ""
        if text != self.text:
            self.text = text
            message = send(BROKER, ChangedFile(text=text), Header(kind="ChangedFile"))
            self._changes.append(Delivery(FILE, message.header, message.body))
            self._wake()

    def _complain(self, complaint: str) -> None:
        """Once for each reason; the configuration in force stays."""
        if complaint != self._complaint:
            self._complaint = complaint
            _log.warning("%s %s; the configuration in force stays", self.path, complaint)

    def _present_stamp(self) -> _Stamp:
        """What is another one after every change: editors and mounts replace the file, so its identity counts too, and
        `cp -p` keeps the time of the text, so that of the change counts.
        """
        found = self.path.stat()
        return found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size

    def _read(self) -> str:
        if self.path.stat().st_size > TEXT_BYTES_MAX:
            raise OSError(f"has more than {TEXT_BYTES_MAX} bytes")
        try:
            return self.path.read_bytes().decode()
        except UnicodeDecodeError as error:
            raise OSError(f"is not UTF-8: {error}") from None
