"""REST routes of configurations: read, validate, replace and roll back the configuration of a resource manager.

Limits of one queue are changed in the text in force, by `yunishard/webservice/config_edit.py`.

The broker decides about a change, for all partitions of the RM or none. A request that names no RM reads from the
default RM. It changes that one only if there is no other, or if the setting `default-rm` names it: a change meant for
another RM must not end what runs on the first one. How a configuration is shown is in `config_view.py`.
"""

import asyncio
import difflib
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Final

import msgspec
from msgspec import Struct, structs

from yunishard.common.config.difference import find_differences
from yunishard.common.config.extra_config import effective
from yunishard.common.config.model import Configuration, compute_checksum
from yunishard.common.config.problems import ConfigError, Problem
from yunishard.common.config.validation import load
from yunishard.common.messages.query_messages import ChangeConfig, ConfigText, ReadConfig
from yunishard.common.names import QUEUE, RM_ID
from yunishard.common.rest.records import ChangedView, ImpactView, LimitedView, LimitsView, VersionView
from yunishard.webservice import parameters
from yunishard.webservice.broker_client import decode_answer, read_document
from yunishard.webservice.calls import JSON, RM_SHOWN_MAX, Call, Reply, ask_partition, default_rm, find_partition
from yunishard.webservice.config_edit import EditError, LimitChange, QueueNotWrittenError, edit_queue
from yunishard.webservice.config_impact import measure_impact
from yunishard.webservice.config_view import config_json, config_yaml
from yunishard.webservice.parameters import (
    ANY_TEXT,
    IF_MATCH,
    IF_NONE_MATCH,
    RM,
    Parameter,
    Schema,
    declare_flag,
    entity_tag,
    read_flag,
)
from yunishard.webservice.router import (
    ANY_OBJECT,
    BINARY,
    BYTES,
    JSON_MEDIA,
    TEXT,
    YAML,
    Access,
    Content,
    Route,
    RouteGroup,
)
from yunishard.webservice.views import RequestError, SettingView, VerdictView, encode

CONFIGURATION: Final = RouteGroup(
    "configuration", "The configuration of each resource manager, and the settings of the system."
)

YAML_TYPE: Final = f"{YAML}; charset=UTF-8"

_PARSED_MAX: Final = 4
"""Parsed configurations in the cache: parsing a large one takes seconds, and it changes seldom."""

_QUEUE_NAME: Final[Schema] = {"type": ["string", "number", "boolean"], "pattern": f"^{QUEUE.pattern}$"}
_QUEUE: Final[Schema] = {"type": ["object", "null"], "properties": {"name": _QUEUE_NAME}, "required": ["name"]}
_PARTITION_NAME: Final[Schema] = {"type": ["string", "number", "boolean", "null"]}
_PARTITION_KEYS: Final[Schema] = {"name": _PARTITION_NAME, "queues": {"type": "array", "items": _QUEUE}}
_PARTITION: Final[Schema] = {"type": ["object", "null"], "properties": _PARTITION_KEYS, "required": ["queues"]}
_PARTITIONS: Final[Schema] = {"type": ["array", "null"], "items": _PARTITION}
_CONFIG_SCHEMA: Final[Schema] = {"type": ["object", "null"], "properties": {"partitions": _PARTITIONS}}
"""As lenient as YAML: any scalar is a name, and an empty document is a configuration without partitions."""

_CONFIG_BODY: Final = (Content(ANY_TEXT, TEXT), Content(_CONFIG_SCHEMA, YAML), Content(BYTES, BINARY))
"""The body is YAML, with any content type. Generated clients can send text and bytes, but not YAML: openapi-generator
takes the first type of a body, and openapi-python-client omits a route whose body can be neither bytes nor JSON.
"""

_ANY_BODY: Final = (Content(ANY_TEXT, TEXT), Content({}, YAML), Content(BYTES, BINARY))

_ORIGIN_MAX: Final = 256
"""Characters of the origin of a version, which names the queue whose limits changed."""

_NUMBER: Final = Parameter("version", "The number of the earlier version.", parameters.VERSION_NUMBER, required=True)
_FORCE: Final = declare_flag(
    "force", "Whether to overwrite the watched file even if it has an edit that is not in force."
)


def _read_route(path: str, answer: Content | type[object], *more: Parameter) -> Route:
    """Declare a route that reads, and that YuniKorn does not have."""
    return Route(CONFIGURATION, "GET", f"/ws/v1/{path}", Access.ADMINS, (answer,), parameters=more, is_private=True)


def _change_route(method: str, path: str, *more: Parameter, body: tuple[Content, ...] = ()) -> Route:
    """Declare a route that changes a configuration."""
    path, shared, answers = f"/ws/v1/{path}", (*more, RM, _FORCE, IF_MATCH), (ChangedView,)
    statuses = {
        409: "It is not possible now, the watched file has an edit that is not in force (see `force`), or there are"
        " several RMs and neither `rm` nor the setting `default-rm` names one."
    }
    return Route(CONFIGURATION, method, path, Access.ADMINS, answers, parameters=shared, body=body, statuses=statuses)


class _Invalid(Struct, frozen=True):
    """The broker's answer about an invalid configuration."""

    problems: list[Problem]


# Reading ------------------------------------------------------------------------------------------------------------


@Route(
    CONFIGURATION,
    "GET",
    "/ws/v1/config",
    Access.ADMINS,
    (Content(ANY_OBJECT, YAML), Content(ANY_OBJECT)),
    parameters=(RM, IF_NONE_MATCH),
    statuses={500: "The configuration in force cannot be parsed."},
    private_with="rm",
)
async def configuration(call: Call) -> Reply:
    """The configuration in force.

    JSON if `Accept` is exactly `application/json`, else YAML. In normal form, as parsed; with `rm`, the YAML text as it
    was written.
    """
    in_json = call.headers.get("accept") == JSON_MEDIA
    if "rm" not in call.query and not (await call.services.broker.partitions()).build_information:
        return await _render_config(call, None, {}, in_json=in_json)
    current = await read_version(call, await _find_rm(call), ReadConfig(what="current"))
    if "rm" in call.query and not in_json:
        return _send_text(current)
    return await _render_config(call, current.config, current.extra, in_json=in_json)


@_read_route("config/default", Content(_CONFIG_SCHEMA, YAML), IF_NONE_MATCH)
async def default(call: Call) -> Reply:
    """The default configuration, which applies to resource managers that send none.

    The text of the watched file, its last valid version, or the built-in queues.
    """
    return _send_text(await read_version(call, "", ReadConfig(what="default")))


@_read_route("config/version/{number}", Content(_CONFIG_SCHEMA, YAML), RM, IF_NONE_MATCH)
async def version(call: Call) -> Reply:
    """A version of a configuration, as it was written."""
    number = _parse_version_number(call.segments["number"])
    return _send_text(await read_version(call, await _find_rm(call), ReadConfig(what="version", version=number)))


@_read_route("config/history", list[VersionView], RM)
async def history(call: Call) -> Reply:
    """The versions of a configuration, newest first."""
    answer = await call.services.broker.read(await _find_rm(call), ReadConfig(what="history"))
    return Reply(read_document(answer).strip() + b"\n")


@_read_route("settings", list[SettingView])
async def settings(call: Call) -> Reply:
    """The settings that the system started with, and those that each resource manager has set."""
    rms = sorted((await call.services.broker.partitions()).build_information)
    current = ReadConfig(what="current")
    shown = [SettingView(one.name, one.value, one.source) for one in call.services.settings.effective]
    for rm, version in zip(rms, await asyncio.gather(*(read_version(call, rm, current) for rm in rms)), strict=True):
        shown += _view_rm_settings(rm, version.extra)
    return Reply(encode(shown))


def _view_rm_settings(rm: str, sent: Mapping[str, str]) -> Iterator[SettingView]:
    """Yield what an RM sent; with the default in place of an invalid value, and a note about keys without effect."""
    in_force = {one.key: one for one in effective(sent)}
    for key, text in sorted(sent.items()):
        one = in_force.get(key)
        if one is None:
            yield SettingView(f"rm/{key}", text, f"RM {rm} (no effect)")
        elif one.sent:
            yield SettingView(f"rm/{key}", text, f"RM {rm}")
        else:
            yield SettingView(f"rm/{key}", one.value, f"default (RM {rm} sent {text!r}, which is not valid)")


async def read_version(call: Call, rm: str, question: ReadConfig) -> ConfigText:
    """A version of the configuration of a resource manager.

    Raises:
        RequestError: there is none.
    """
    return decode_answer(await call.services.broker.read(rm, question), ConfigText, "The broker")


def _send_text(found: ConfigText) -> Reply:
    return Reply(found.config.encode(), 200, YAML_TYPE, {"ETag": entity_tag(found.checksum), "Vary": "Accept"})


async def _render_config(call: Call, text: str | None, extra: dict[str, str], *, in_json: bool) -> Reply:
    def render() -> bytes:
        parsed = None if text is None else _parse_config(text)
        return (config_json if in_json else config_yaml)(parsed, extra, os.environ)

    try:
        return Reply(await asyncio.to_thread(render), content_type=JSON if in_json else YAML_TYPE)
    except ConfigError as error:
        raise RequestError(500, f"the configuration in force cannot be read: {error.problems[0]}") from None


@lru_cache(maxsize=_PARSED_MAX)
def _parse_config(text: str) -> Configuration:
    return load(text)


_ALL_PROBLEMS: Final = declare_flag("problems", "Whether to list all problems, with their places.")


@Route(
    CONFIGURATION,
    "POST",
    "/ws/v1/validate-conf",
    Access.KNOWN,
    (VerdictView,),
    parameters=(_ALL_PROBLEMS,),
    body=_ANY_BODY,
    body_required=False,
)
async def validate(call: Call) -> Reply:
    """Whether a configuration is valid; nothing changes.

    One configuration is validated at a time: a large one takes seconds, and any caller may send one.
    """
    services, lists_problems = call.services, read_flag(call.query, "problems")
    if services.validations.locked():
        raise RequestError(503, "Several configurations are being validated already, try again later")
    reason = ""
    problems: list[Problem] = []
    try:
        async with services.validations:
            body = await call.body()
            async with services.validation_lock:
                await asyncio.to_thread(load, body.decode())
    except UnicodeDecodeError as error:
        reason = f"the text is not UTF-8: {error}"
    except ConfigError as error:
        reason = error.problems[0].message
        if lists_problems:
            problems = list(error.problems)
    return Reply(encode(VerdictView(allowed=not reason, reason=reason, problems=problems)))


@Route(
    CONFIGURATION,
    "POST",
    "/ws/v1/config/impact",
    Access.ADMINS,
    (ImpactView,),
    parameters=(RM,),
    body=_CONFIG_BODY,
    is_private=True,
    only_examines=True,
)
async def impact(call: Call) -> Reply:
    """Compare a configuration with the one in force and with the work that runs now; nothing changes.

    Lists the differences from the configuration in force, queues above their new maximum, removed queues that have
    applications, and users and groups above their new limits.
    """
    services = call.services
    if services.validations.locked():
        raise RequestError(503, "Several configurations are being validated already, try again later")
    async with services.validations:
        text = _decode_config(await call.body())
        rm = await _find_rm(call)
        current = await read_version(call, rm, ReadConfig(what="current"))
        try:
            async with services.validation_lock:
                wanted = await asyncio.to_thread(load, text)
                in_force = await asyncio.to_thread(_parse_config, current.config)
                differences = await asyncio.to_thread(find_differences, in_force, wanted)
        except ConfigError as error:
            raise make_invalid(list(error.problems)) from None
        return Reply(encode(await measure_impact(call, rm, current.checksum, (in_force, wanted), differences)))


# Changing -----------------------------------------------------------------------------------------------------------


@_change_route("PUT", "config", body=_CONFIG_BODY)
@_change_route("POST", "config", body=_CONFIG_BODY)
async def replace(call: Call) -> Reply:
    """Replace the configuration of a resource manager.

    For all its partitions or none. All problems of an invalid configuration are in `problems`.
    """
    wanted = _prepare_change(call)
    text = _decode_config(await call.body())
    return await _change(call, await _find_rm(call, changes=True), structs.replace(wanted, config=text))


@_change_route("POST", "config/rollback", _NUMBER)
async def roll_back(call: Call) -> Reply:
    """Put an earlier configuration in force again, as a new version."""
    wanted = _prepare_change(call)
    number = _parse_version_number(call.query.get("version", ""))
    rm = await _find_rm(call, changes=True)
    earlier = await read_version(call, rm, ReadConfig(what="version", version=number))
    return await _change(call, rm, structs.replace(wanted, config=earlier.config, origin=f"rollback to {number}"))


def _prepare_change(call: Call) -> ChangeConfig:
    """A change without its configuration: with the author, the precondition, and whether it may overwrite an edit of
    the watched file.
    """
    expected, force = parameters.expected_checksum(call.headers.get("if-match")), read_flag(call.query, "force")
    return ChangeConfig(config="", author=call.requester.user, expected=expected, overwrite=force)


async def _change(call: Call, rm: str, wanted: ChangeConfig) -> Reply:
    changed = await _put_in_force(call, rm, wanted)
    return Reply(encode(changed), headers={"ETag": entity_tag(changed.checksum)})


async def _put_in_force(call: Call, rm: str, wanted: ChangeConfig) -> ChangedView:
    answer = await call.services.broker.change(wanted, rm=rm)
    if answer.status == 400:
        with suppress(msgspec.MsgspecError):  # it is another problem, in plain text
            raise make_invalid(msgspec.json.decode(answer.body, type=_Invalid).problems)
    return decode_answer(answer, ChangedView, "The broker")


def _decode_config(body: bytes) -> str:
    """The text of a configuration in a request.

    Raises:
        RequestError: it is empty, or not UTF-8.
    """
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise make_invalid([Problem(message=f"the text is not UTF-8: {error}", kind="syntax")]) from None
    if not text.strip():  # an empty text would mean the default configuration
        hint = "the body of the request is the whole configuration, as YAML"
        raise make_invalid([Problem(message="the configuration is empty", kind="syntax", hint=hint)])
    return text


def make_invalid(problems: list[Problem]) -> RequestError:
    """The error for an invalid configuration, with all its problems."""
    text = problems[0].message if problems else "the configuration is wrong"
    return RequestError(400, text, problems=problems)


_LIMIT_BYTES_MAX: Final = 64 * 1024
"""Bytes of a request for other limits of a queue; a longer one is refused."""

_DRY_RUN: Final = declare_flag("dryRun", "Whether only to show what would change, and its problems.")


@Route(
    CONFIGURATION,
    "POST",
    "/ws/v1/partition/{partition}/queue/{queue}/limit",
    Access.ADMINS,
    (LimitedView,),
    parameters=(RM, _DRY_RUN, _FORCE, IF_MATCH),
    body=(Content(LimitsView),),
    statuses={
        409: "The queue is dynamic, its limits are written in a way that only a person can change, the watched file"
        " has an edit that is not in force (see `force`), or it is not possible now."
    },
)
async def limit(call: Call) -> Reply:
    """Change limits of one queue in the configuration of its resource manager.

    The text is changed in place, with its comments and order, and put in force like any other configuration.
    """
    wanted, dry_run = _prepare_change(call), read_flag(call.query, "dryRun")
    change, path = await _read_limits(call), parameters.queue_path(call.segments["queue"])
    partition = await find_partition(call)
    rm, name = partition.entry.rm_id, partition.entry.name
    current = await read_version(call, rm, ReadConfig(what="current"))
    if wanted.expected and wanted.expected != current.checksum:
        raise RequestError(412, f"In force is a configuration with the checksum {current.checksum}")
    try:
        async with call.services.validation_lock:
            text = await asyncio.to_thread(edit_queue, current.config, name, path, change)
            if dry_run:
                await asyncio.to_thread(load, text)
    except QueueNotWrittenError as error:
        await ask_partition(call, partition, "queue", queue=path)  # a missing queue is 404
        hint = "its limits come from the template of its parent or from tags of its applications"
        raise RequestError(409, f"{error}: if it is dynamic, {hint}") from None
    except EditError as error:
        raise RequestError(409, str(error)) from None
    except ConfigError as error:
        raise make_invalid(list(error.problems)) from None
    made = ChangedView(checksum=compute_checksum(text), version=0, partitions=[], file=False, followers=[])
    if not dry_run:
        origin = f"limit of {path}"[:_ORIGIN_MAX]
        wanted = structs.replace(wanted, config=text, origin=origin, expected=current.checksum)
        made = await _put_in_force(call, rm, wanted)
    lines = difflib.unified_diff(current.config.splitlines(), text.splitlines(), "in force", "changed", lineterm="")
    view = LimitedView(
        **structs.asdict(made),
        queue=path,
        diff="".join(f"{line}\n" for line in lines),
        base=current.checksum,
        dry_run=dry_run,
    )
    return Reply(encode(view), headers={} if view.dry_run else {"ETag": entity_tag(made.checksum)})


async def _read_limits(call: Call) -> LimitChange:
    body = await call.body()
    if len(body) > _LIMIT_BYTES_MAX:
        raise RequestError(413, f"The body has at most {_LIMIT_BYTES_MAX} bytes")
    try:
        limits = msgspec.json.decode(body, type=LimitsView)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise RequestError(400, f"The body is not a JSON object of limits: {error}") from None
    change = LimitChange(maximum=limits.max, guaranteed=limits.guaranteed, max_applications=limits.max_applications)
    if change.is_empty:
        raise RequestError(400, "The body names no limit: give max, guaranteed or maxApplications")
    return change


# Both ---------------------------------------------------------------------------------------------------------------


async def _find_rm(call: Call, *, changes: bool = False) -> str:
    """The named RM, or the default RM. The broker checks whether a named RM exists. If there are several to change, the
    request or the setting `default-rm` must name one.
    """
    rm, preferred = call.query.get("rm", ""), call.services.settings.default_rm
    if rm:
        if not RM_ID.fullmatch(rm):  # no valid ID, and perhaps too long for a message
            raise RequestError(404, f"RM {rm[:RM_SHOWN_MAX]!r} is not registered")
        return rm
    known = await call.services.broker.partitions()
    rms = known.build_information
    if changes and len(rms) > 1 and preferred not in rms:
        text = f"There are several resource managers, say which with ?rm=, one of: {', '.join(rms)}"
        raise RequestError(409, text)
    rm = default_rm(known, preferred)
    if not rm:
        raise RequestError(404, "No resource manager is registered")
    return rm


def _parse_version_number(text: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,8}", text):
        raise RequestError(400, f"Version {text!r} is not a number from 1, as GET /ws/v1/config/history lists them")
    return int(text)
