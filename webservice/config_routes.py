"""The configuration of a resource manager over HTTP: to read it, to change it, what it was, and back to that.

A change is decided by the broker, for all partitions or none; here is only how it is asked for. A request that names
no RM reads from the default RM. It changes that one only if there is no other, or if the setting `default-rm` names it:
a change that was meant for another RM must not end what runs on the first one.

Not here: how a configuration is shown (`config_view.py`).
"""

import asyncio
import re
from functools import lru_cache
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from common.config.check import load
from common.config.model import Configuration
from common.config.problems import ConfigError, Problem
from common.names import RM_ID
from common.query_messages import Actor, Answer, ChangeConfig, ReadConfig
from common.rest_records import ChangedView
from webservice.access import Access
from webservice.calls import JSON, ApiRoute, Call, Changing, Reply, document
from webservice.config_view import config_json, config_yaml
from webservice.parameters import entity_tag, expected_checksum, is_known
from webservice.partition_names import RM_SHOWN_MAX, default_rm
from webservice.router import Route
from webservice.views import RequestError, SettingView, VerdictView, encoded

YAML: Final = "application/x-yaml; charset=UTF-8"
JSON_ONLY: Final = "application/json"
"""The one value of `Accept` that asks for JSON."""

_VERSION: Final = re.compile(r"[1-9][0-9]{0,8}")
_LOADED_MAX: Final = 4
"""Configurations kept as understood: reading a large one takes seconds, and it changes seldom."""

_S = TypeVar("_S", bound=Struct)


class _Version(Struct, frozen=True):
    """A version as the broker tells it; what only some answers have is empty in others."""

    checksum: str
    config: str
    extra: dict[str, str] = {}


class _Refused(Struct, frozen=True):
    """What the broker says of a configuration that is wrong."""

    problems: list[Problem]


# Reading ------------------------------------------------------------------------------------------------------------


async def configuration(call: Call) -> Reply:
    """What is in force: as it was understood, or of a named resource manager as it was written."""
    in_json = call.headers.get("accept") == JSON_ONLY
    if "rm" not in call.query and not (await call.link.partitions()).build_information:
        return await _view(call, None, {}, in_json=in_json)
    current = await _read(call, await _rm_of(call), ReadConfig(what="current"))
    if "rm" in call.query and not in_json:
        return _as_written(call, current)
    return await _view(call, current.config, current.extra, in_json=in_json)


async def default(call: Call) -> Reply:
    """The text that a resource manager gets which sends none: of the watched file, or the built-in one."""
    return _as_written(call, await _read(call, "", ReadConfig(what="default")))


async def version(call: Call) -> Reply:
    """The text of a version, current or not."""
    number = _version_number(call.parameters["number"])
    return _as_written(call, await _read(call, await _rm_of(call), ReadConfig(what="version", version=number)))


async def history(call: Call) -> Reply:
    """All versions that are kept, the newest first."""
    answer = await call.link.read(await _rm_of(call), ReadConfig(what="history"))
    return Reply(document(answer).strip() + b"\n")


async def settings(call: Call) -> Reply:
    """What the system was told at its start, then what each resource manager has set; all or nothing."""
    rms = sorted((await call.link.partitions()).build_information)
    shown = list(call.startup.settings)
    for rm, current in zip(rms, await asyncio.gather(*(_current(call, rm) for rm in rms)), strict=True):
        shown += [SettingView(f"rm/{key}", current.extra[key], f"RM {rm}") for key in sorted(current.extra)]
    return Reply(encoded(shown))


async def _current(call: Call, rm: str) -> _Version:
    return await _read(call, rm, ReadConfig(what="current"))


async def _read(call: Call, rm: str, question: ReadConfig) -> _Version:
    return _understood(await call.link.read(rm, question), _Version)


def _as_written(call: Call, found: _Version) -> Reply:
    headers = {"ETag": entity_tag(found.checksum), "Vary": "Accept"}
    if is_known(call.headers.get("if-none-match"), found.checksum):
        return Reply(b"", 304, YAML, headers)
    return Reply(found.config.encode(), 200, YAML, headers)


async def _view(call: Call, text: str | None, extra: dict[str, str], *, in_json: bool) -> Reply:
    def shown() -> bytes:
        understood = None if text is None else _loaded(text)
        return (config_json if in_json else config_yaml)(understood, extra, call.startup.deadlock)

    try:
        return Reply(await asyncio.to_thread(shown), content_type=JSON if in_json else YAML)
    except ConfigError as error:
        raise RequestError(500, f"the configuration in force cannot be read: {error.problems[0]}") from None


@lru_cache(maxsize=_LOADED_MAX)
def _loaded(text: str) -> Configuration:
    return load(text)


async def validate(call: Call) -> Reply:
    """Whether a configuration would be taken. Nothing changes. Whoever is known may ask, and a large one takes seconds:
    so one is read at a time, or the threads for everything else would be taken.
    """
    if call.turns.validations.locked():
        raise RequestError(503, "Several configurations are being validated already, try again later")
    try:
        async with call.turns.validations:
            body = await call.body()
            async with call.turns.validation:
                await asyncio.to_thread(load, body.decode())
    except UnicodeDecodeError as error:
        return Reply(encoded(VerdictView(allowed=False, reason=f"the text is not UTF-8: {error}")))
    except ConfigError as error:
        return Reply(encoded(VerdictView(allowed=False, reason=error.problems[0].message)))
    return Reply(encoded(VerdictView(allowed=True)))


# Changing -----------------------------------------------------------------------------------------------------------


async def replace(call: Call, actor: Actor) -> Reply:
    """Give the resource manager the configuration in the body."""
    expected = expected_checksum(call.headers.get("if-match"))
    try:
        text = (await call.body()).decode()
    except UnicodeDecodeError as error:
        raise _wrong([Problem(message=f"the text is not UTF-8: {error}", kind="syntax")]) from None
    if not text.strip():  # it would mean the default configuration, which nobody asks for by saying nothing
        hint = "the body of the request is the whole configuration, as YAML"
        raise _wrong([Problem(message="the configuration is empty", kind="syntax", hint=hint)])
    wanted = ChangeConfig(config=text, author=actor.user, expected=expected, overwrite=_force(call))
    return await _change(call, await _changed_rm(call), wanted)


async def roll_back(call: Call, actor: Actor) -> Reply:
    """Give the resource manager a configuration that it had before, as a new version."""
    expected = expected_checksum(call.headers.get("if-match"))
    number = _version_number(call.query.get("version", ""))
    rm = await _changed_rm(call)
    earlier = await _read(call, rm, ReadConfig(what="version", version=number))
    origin = f"rollback to {number}"
    wanted = ChangeConfig(
        config=earlier.config, author=actor.user, origin=origin, expected=expected, overwrite=_force(call)
    )
    return await _change(call, rm, wanted)


async def _change(call: Call, rm: str, wanted: ChangeConfig) -> Reply:
    answer = await call.link.change(wanted, rm=rm)
    if answer.status == 400:
        raise _refusal(answer)
    changed = _understood(answer, ChangedView)
    return Reply(encoded(changed), headers={"ETag": entity_tag(changed.checksum)})


def _refusal(answer: Answer) -> RequestError:
    try:
        return _wrong(msgspec.json.decode(answer.body, type=_Refused).problems)
    except msgspec.MsgspecError:  # wrong in another way, told as a text
        return RequestError(400, answer.body.decode(errors="replace"))


def _wrong(problems: list[Problem]) -> RequestError:
    text = problems[0].message if problems else "the configuration is wrong"
    return RequestError(400, text, problems=problems)


# Both ---------------------------------------------------------------------------------------------------------------


async def _changed_rm(call: Call) -> str:
    """The RM that a change is for; of several it has to be named, by the request or by the setting `default-rm`."""
    if not call.query.get("rm"):
        rms = list((await call.link.partitions()).build_information)
        if len(rms) > 1 and call.startup.default_rm not in rms:
            known = ", ".join(rms)
            raise RequestError(409, f"There are several resource managers, say which with ?rm=, one of: {known}")
    return await _rm_of(call)


async def _rm_of(call: Call) -> str:
    """The RM that is named, or the default RM; whether one that is named exists, the broker says."""
    rm = call.query.get("rm", "")
    if rm:
        if not RM_ID.fullmatch(rm):  # one that nobody can have, and perhaps longer than may be sent on
            raise RequestError(404, f"RM {rm[:RM_SHOWN_MAX]!r} is not registered")
        return rm
    rm = default_rm(await call.link.partitions(), call.startup.default_rm)
    if not rm:
        raise RequestError(404, "No resource manager is registered")
    return rm


def _force(call: Call) -> bool:
    """Whether an edit of the watched file may be overwritten."""
    text = call.query.get("force", "false")
    if text not in ("true", "false"):
        raise RequestError(400, f"force is {text[:RM_SHOWN_MAX]!r}, expected true or false")
    return text == "true"


def _version_number(text: str) -> int:
    if not _VERSION.fullmatch(text):
        raise RequestError(400, f"Version {text!r} is not a number from 1, as GET /ws/v1/config/history lists them")
    return int(text)


def _understood(answer: Answer, kind: type[_S]) -> _S:
    try:
        return msgspec.json.decode(document(answer), type=kind)
    except msgspec.MsgspecError as error:
        raise RequestError(503, f"The broker answered what cannot be read: {error}") from None


ROUTES: Final[tuple[ApiRoute, ...]] = (
    Route("GET", "/ws/v1/config", configuration, Access.ADMINS),
    Route("PUT", "/ws/v1/config", Changing(replace), Access.ADMINS),
    Route("POST", "/ws/v1/config", Changing(replace), Access.ADMINS),
    Route("GET", "/ws/v1/config/default", default, Access.ADMINS),
    Route("GET", "/ws/v1/config/history", history, Access.ADMINS),
    Route("GET", "/ws/v1/config/version/{number}", version, Access.ADMINS),
    Route("POST", "/ws/v1/config/rollback", Changing(roll_back), Access.ADMINS),
    Route("POST", "/ws/v1/validate-conf", validate, Access.KNOWN),
    Route("GET", "/ws/v1/settings", settings, Access.ADMINS),
)
