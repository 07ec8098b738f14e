"""What keeps a dialogue with the core going: the connection, another one when it says nothing, signs of life, attempts.

    said, heard --> dialogue.py (what to say) --> connection.py (the socket)
    time        --> pulse.py (when)

Not here: what programs call (`manager.py`).
"""

import asyncio
import logging
import random
from typing import Final

from common.keys import ClientKeys
from common.machine import NEVER
from common.rm_messages import StateDumpAnswered
from common.session import SessionState
from common.wire import frames_of
from yunishard.connection import Connection, KeyRefused
from yunishard.dialogue import READ_AHEAD_MESSAGES, Dialogue
from yunishard.pulse import Pulse
from yunishard.state_dump import StateDump, StateDumps

_UNDER_WAY: Final[frozenset[SessionState]] = frozenset({"resuming", "leaving"})
"""States that an answer ends which should come soon."""

_log = logging.getLogger(__name__)


class Link:
    """Between one dialogue and the core at one address, in the running event loop.

    Raises:
        ConnectionError: the address cannot be one.
    """

    def __init__(
        self, address: str, dialogue: Dialogue, keys: ClientKeys | None, state_dump: StateDump | None = None
    ) -> None:
        self.address = address
        self.waiting = 0
        """How many wait for something that may be behind what nobody takes."""
        self.arrived = asyncio.Event()  # both only pulse: set and cleared at once, that wakes whoever waits just now
        self.room = asyncio.Event()
        self._dialogue = dialogue
        self._dumps = None if state_dump is None else StateDumps(state_dump, self._tell_state)
        self._pulse = Pulse(random.random)
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._connection = Connection(address, self, keys)

    def flush(self) -> None:
        """Send what the dialogue has to say."""
        now = self._loop.time()
        for outgoing in self._dialogue.to_send():
            self._connection.send(frames_of(outgoing.header, outgoing.body))
            self._pulse.said(now)
        self._follow(now)

    def look(self) -> None:
        """Read on: there may be room, or somebody who waits."""
        self._connection.look()

    def wake(self) -> None:
        """Have everybody who waits see what has become of it."""
        _pulse(self.arrived)
        _pulse(self.room)

    async def close(self) -> None:
        """Close once the last messages have left."""
        if self._timer is not None:
            self._timer.cancel()
        if self._dumps is not None:
            self._dumps.close()
        await self._connection.close()

    # What the connection calls --------------------------------------------------------------------------------------

    @property
    def hungry(self) -> bool:
        """Whether the connection is to read on."""
        if self._dialogue.over is not None:
            return False
        return self._dialogue.backlog() < READ_AHEAD_MESSAGES or self.waiting > 0

    def connected(self) -> None:
        """The connection is there, for the first time or again."""
        if self._pulse.pausing:
            return  # it is spoken to when the pause is over
        self._dialogue.connected()
        self.flush()
        _pulse(self.arrived)  # who waits for an answer to what was sent before

    def received(self, frames: list[bytes]) -> None:
        """A message came."""
        self._pulse.heard(self._loop.time())
        room = self._dialogue.received(frames)
        self.flush()
        _pulse(self.arrived)
        if room:
            _pulse(self.room)
        for partition, question in self._dialogue.state_wanted():
            if self._dumps is not None:
                self._dumps.asked(partition, question)

    def shut_out(self, reason: str) -> None:
        """The port does not let us in."""
        rm_id = self._dialogue.session.rm_id
        self._dialogue.end(KeyRefused(f"{self.address} does not let {rm_id} in: {reason}"))
        self.wake()

    def _tell_state(self, partition: str, answered: StateDumpAnswered) -> None:
        self._dialogue.tell_state(partition, answered)
        self.flush()

    # Time -----------------------------------------------------------------------------------------------------------

    def _follow(self, now: float) -> None:
        """Let the pulse be as the dialogue is."""
        dialogue, pulse = self._dialogue, self._pulse
        if dialogue.over is not None:
            pulse.calling()
        elif dialogue.pause_s is not None:
            _log.warning("%s: %s is not ready: %s", dialogue.session.rm_id, self.address, dialogue.complaint)
            pulse.pause(dialogue.pause_s, now)
            dialogue.pause_s = None
        elif dialogue.session.state == "registering" and not pulse.pausing:
            pulse.calling()
        elif dialogue.session.state in _UNDER_WAY and not (pulse.pausing or pulse.attempting):
            if dialogue.session.state == "resuming":
                _log.warning("%s: resuming the session with %s", dialogue.session.rm_id, self.address)
            pulse.trying(now)
        elif dialogue.session.state == "open" and not pulse.is_talking:
            expects = dialogue.expects
            pulse.talking(expects.heartbeat_milli_seconds, expects.silence_milli_seconds, now)
        self._schedule()

    def _schedule(self) -> None:
        """Have a look at the pulse in time; one that comes too early sees that."""
        at = self._pulse.deadline
        if self._timer is not None:
            if self._timer.when() <= at:
                return
            self._timer.cancel()
        self._timer = None if at == NEVER else self._loop.call_at(at, self._beat)

    def _beat(self) -> None:
        self._timer = None
        now = self._loop.time()
        match self._pulse.due(now, reading=self.hungry):
            case "heartbeat":
                outgoing = self._dialogue.session.heartbeat()
                self._connection.send(frames_of(outgoing.header, outgoing.body))
            case "renew":
                _log.warning("%s: %s says nothing, connecting again", self._dialogue.session.rm_id, self.address)
                self._connection.renew()
                self._pulse.trying(now)
            case "again":
                self._pulse.trying(now)
                self.connected()
        self._schedule()


def _pulse(event: asyncio.Event) -> None:
    event.set()
    event.clear()
