"""Reading a system over REST, and the few things that are written there."""

import json
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Final

TIMEOUT_S: Final = 30.0


def quoted(text: str) -> str:
    """As one part of a path."""
    return urllib.parse.quote(text, safe="")


class Rest:
    """The REST side of one system."""

    def __init__(self, address: str) -> None:
        self._address = address.rstrip("/")

    def ask(self, path: str, *, post: str | None = None) -> tuple[int, str]:
        """Status and text of the answer, whatever the status says; with `post` that text is sent."""
        data = None if post is None else post.encode()
        request = urllib.request.Request(self._address + path, data=data)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode(errors="replace")

    def read(self, path: str, *, post: str | None = None) -> Any:
        """What the JSON says; it has to be there.

        Raises:
            LookupError: the status says that it is not.
        """
        status, text = self.ask(path, post=post)
        if status != 200:
            raise LookupError(f"{path}: status {status}: {text.strip()}")
        return json.loads(text or "null")
