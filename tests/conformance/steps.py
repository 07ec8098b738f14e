"""The steps of a trace, one method each, and what each of them records.

A step is a mapping with a single key, its name. Most take `rm`, the resource manager that it is about (rm-1).

    register        config, extra              a refusal is recorded
    config          config                     a new queue configuration; whether it is refused is recorded
    validate        config                     ask over REST whether a configuration is valid; recorded
    nodes           items, settle              settle: wait for silence after it (true for nodes, false for asks)
    apps            add, remove
    asks            items, settle
    release         items, type
    release-placed  app, count, type           the first allocations that run of an application, in order of their keys
    confirm         releases, withheld         whether it confirms releases from now on; confirm those held back
    sleep           seconds
    await           app, running, state, limit until so many allocations run, or that state is entered; no failure
    settle          quiet, limit, detail, with, without    wait for silence, then record the state (`state.py`)
    events          types, objects             record how often each kind of event is told of each object
    metrics         names, match               record the metrics that are not zero, or that there is no page of them
    rest            path, pick                 record the status of a GET, and some fields of what it brings

Items are explained in `items.py`. A trace goes on whatever a step brings, the recording tells what went wrong;
it breaks off only when the system is not there to be asked.
"""

import json
import re
from collections.abc import Callable
from typing import Any, Final

from tests.conformance.clocks import LIMIT_S, Clock, RealClock, await_condition, await_silence, silent_since
from tests.conformance.items import Item, ask, expanded, gone_application, new_application, node, release
from tests.conformance.manager import RecordingManager
from tests.conformance.rest import Rest, quoted
from tests.conformance.state import Object, Wanted, state_of
from tests.conformance.wires import Dial, RefusedError
from yunishard.rmproxy.si import scheduler_pb2 as pb

SHORT_S: Final = 0.3
"""Silence after an update that the next step builds on."""
LONG_S: Final = 0.8
"""Silence before the state is recorded."""
AWAIT_S: Final = 30.0
SAMPLE: Final = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")
MISSING: Final = re.compile(r"^yunishard_process_up\{.*\} 0$", re.MULTILINE)
"""Whoever is too busy to tell its metrics in time is left out of the page, which says so."""


class Play:
    """One trace as it is played to a system that nobody else uses."""

    def __init__(self, dial: Dial, rest: Rest, clock: Clock | None = None) -> None:
        self.recorded: list[Object] = []
        self._dial = dial
        self._rest = rest
        self._clock = clock or RealClock()
        self._managers: dict[str, RecordingManager] = {}
        self._steps: dict[str, Callable[[Any], None]] = {
            "register": self._register,
            "config": self._config,
            "validate": self._validate,
            "nodes": self._nodes,
            "apps": self._applications,
            "asks": self._asks,
            "release": self._release,
            "release-placed": self._release_placed,
            "confirm": self._confirm,
            "sleep": self._sleep,
            "await": self._await,
            "settle": self._settle,
            "events": self._events,
            "metrics": self._metrics,
            "rest": self._read,
        }

    def step(self, step: Item) -> None:
        [(name, body)] = step.items()
        self._steps[name]({} if body is None else body)

    def close(self) -> None:
        for rm in self._managers.values():
            rm.close()

    # Updates --------------------------------------------------------------------------------------------------------

    def _register(self, body: Item) -> None:
        rm_id = _rm_of(body)
        earlier = self._managers.pop(rm_id, None)
        if earlier is not None:
            earlier.close()
        try:
            self._managers[rm_id] = RecordingManager(
                self._dial, rm_id, body["config"], body.get("extra", {}), self._clock.now
            )
        except RefusedError:
            self.recorded.append({"register-refused": True})

    def _nodes(self, body: Item) -> None:
        self._rm(body).send_nodes([node(item) for item in expanded(body["items"])])
        if body.get("settle", True):
            self._quiet(SHORT_S)

    def _applications(self, body: Item) -> None:
        self._rm(body).send_applications(
            [new_application(item) for item in expanded(body.get("add", []))],
            [gone_application(item) for item in expanded(body.get("remove", []))],
        )
        self._quiet(SHORT_S)

    def _asks(self, body: Item) -> None:
        self._rm(body).send_asks([ask(item) for item in expanded(body["items"])])
        if body.get("settle", False):
            self._quiet(SHORT_S)

    def _release(self, body: Item) -> None:
        kind = body.get("type", "STOPPED_BY_RM")
        self._rm(body).release([release(item, kind) for item in expanded(body["items"])])

    def _release_placed(self, body: Item) -> None:
        keys = self._rm(body).keys_of(body["app"])[: body["count"]]
        self._release({**body, "items": [{"app": body["app"], "key": key} for key in keys]})

    def _confirm(self, body: Item) -> None:
        rm = self._rm(body)
        rm.confirms = body.get("releases", rm.confirms)
        if body.get("withheld", False):
            rm.confirm_withheld()

    # Configuration --------------------------------------------------------------------------------------------------

    def _config(self, body: Item) -> None:
        status, _ = self._rest.ask(f"/ws/v1/config?rm={quoted(_rm_of(body))}", post=body["config"])
        self.recorded.append({"config-refused": status != 200})

    def _validate(self, body: Item) -> None:
        answer = self._rest.read("/ws/v1/validate-conf", post=body["config"])
        self.recorded.append({"config-valid": answer["allowed"]})

    # Waiting --------------------------------------------------------------------------------------------------------

    def _sleep(self, seconds: float) -> None:
        self._clock.sleep(seconds)

    def _await(self, body: Item) -> None:
        rm, application = self._rm(body), body["app"]

        def holds() -> bool:
            with rm.lock:
                running = sum(one.application == application for one in rm.running.values())
                state = rm.application_states.get(application, [None])[-1]
            return running == body.get("running", running) and state == body.get("state", state)

        await_condition(self._clock, holds, limit_s=body.get("limit", AWAIT_S))

    def _quiet(self, quiet_s: float, limit_s: float = LIMIT_S) -> float:
        managers = self._managers.values()
        return await_silence(
            self._clock, managers, lambda: self._rest.ask("/ws/v1/partitions"), quiet_s=quiet_s, limit_s=limit_s
        )

    # Recording ------------------------------------------------------------------------------------------------------

    def _settle(self, body: Item) -> None:
        wanted = Wanted(
            detail=body.get("detail", "apps"), extra=body.get("with", ()), without=frozenset(body.get("without", ()))
        )
        limit_s = body.get("limit", LIMIT_S)
        end_s = self._clock.now() + limit_s
        while True:
            since_s = self._quiet(body.get("quiet", LONG_S), limit_s)
            state = state_of(self._managers, self._rest, wanted)
            if silent_since(self._managers.values(), since_s) == since_s or self._clock.now() >= end_s:
                break  # what was read is not torn: nothing happened meanwhile
        self.recorded.append(state)

    def _events(self, body: Item) -> None:
        types = {name.upper() for name in body.get("types", ("app", "node", "queue"))}
        objects = body.get("objects")
        counts: dict[str, dict[str, int]] = {}
        for event in self._rest.read("/ws/v1/events/batch")["EventRecords"] or []:
            kind, name = _name(pb.EventRecord.Type, event.get("type", 0)), event.get("objectID", "")
            if kind not in types or (objects and name not in objects):
                continue
            change = _name(pb.EventRecord.ChangeType, event.get("eventChangeType", 0))
            detail = _name(pb.EventRecord.ChangeDetail, event.get("eventChangeDetail", 0))
            of_object = counts.setdefault(f"{kind.lower()} {name}", {})
            of_object[f"{change} {detail}"] = of_object.get(f"{change} {detail}", 0) + 1
        self.recorded.append({"events": counts})

    def _metrics(self, body: Item) -> None:
        until = self._clock.now() + AWAIT_S
        status, text = self._rest.ask("/ws/v1/metrics")
        while MISSING.search(text) and self._clock.now() < until:
            status, text = self._rest.ask("/ws/v1/metrics")
        if status != 200 or (missing := MISSING.search(text)):
            self.recorded.append({"metrics": f"status {status}: {missing[0] if status == 200 else text.strip()}"})
            return
        found = {}
        for sample in filter(None, map(SAMPLE.fullmatch, text.splitlines())):
            name, labels, value = sample[1], sample[2] or "", float(sample[3])
            if value and name in body["names"] and re.search(body.get("match", ""), f"{{{labels}}}"):
                found[f"{name}{{{','.join(sorted(labels.split(',')))}}}"] = value
        self.recorded.append({"metrics": found})

    def _read(self, body: Item) -> None:
        status, text = self._rest.ask(body["path"])
        found: Object = {"rest": body["path"], "status": status}
        if status == 200 and "pick" in body:
            answer = json.loads(text or "null")
            found["body"] = _picked(answer, body["pick"]) if isinstance(answer, dict) else _all_picked(answer, body)
        self.recorded.append(found)

    def _rm(self, body: Item) -> RecordingManager:
        return self._managers[_rm_of(body)]


def _rm_of(body: Item) -> str:
    return body.get("rm", "rm-1")


def _picked(entry: Object, names: list[str]) -> Object:
    return {name: entry[name] for name in names if name in entry}


def _all_picked(entries: list[Object] | None, body: Item) -> list[Object]:
    """In an order that does not depend on that of the answer."""
    return sorted(
        (_picked(entry, body["pick"]) for entry in entries or []), key=lambda one: json.dumps(one, sort_keys=True)
    )


def _name(enum: Any, value: int | str) -> str:
    """Systems tell enumerations by name or by number."""
    return value if isinstance(value, str) else enum.Name(value)
