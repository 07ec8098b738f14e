"""Replies that hold as long as nothing changes: with the version that a client may ask for again, how old they are, and
where a list goes on.

The version is weak (`W/`): two bodies of one version say the same, compressed or not. Not here: keeping answers
(`shelf.py`).
"""

from typing import Final
from urllib.parse import quote, urlencode

from common.query_messages import NOT_MODIFIED
from webservice.calls import Call, Reply, document
from webservice.shelf import Shelved

AGE_MIN_S: Final = 1.0
"""What is younger has no age."""


def lasting(call: Call, found: Shelved) -> Reply:
    """The reply with an answer, or that the one that the client has still holds.

    Raises:
        RequestError: the answer has another status than 200.
    """
    document(found.answer)  # raises for any other status
    headers = age(found.age_s)
    if call.viewer is not None:
        headers["Cache-Control"] = "private, no-cache"
    if found.answer.next:
        headers["Link"] = f'<{_next_page(call, found.answer.next)}>; rel="next"'
    if not found.answer.version:
        return Reply(found.body, headers=headers)
    headers["ETag"] = f'W/"{found.answer.version}"'
    if _is_known(call.headers.get("if-none-match", ""), found.answer.version):
        return Reply(b"", NOT_MODIFIED, headers=headers)
    return Reply(found.body, headers=headers)


def age(seconds: float) -> dict[str, str]:
    """The header that says how old an answer is, if it is old enough for one."""
    return {"Age": str(int(seconds))} if seconds >= AGE_MIN_S else {}


def _next_page(call: Call, after: str) -> str:
    others = {name: value for name, value in sorted(call.query.items()) if name not in ("limit", "after")}
    query = urlencode({**others, "limit": call.query["limit"], "after": after}, quote_via=quote)
    return f"{call.path}?{query}"


def _is_known(condition: str, version: str) -> bool:
    """Whether the header `If-None-Match` names the version."""
    tags = (tag.strip().removeprefix("W/") for tag in condition.split(","))
    return any(tag in ("*", f'"{version}"') for tag in tags)
