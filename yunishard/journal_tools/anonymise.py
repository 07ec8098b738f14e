"""Replace the names in a journal by pseudonyms, so that the journal can be sent with a bug report.

Equal names get equal pseudonyms, whatever they name: a queue that is called like a user still is, and a selector still
selects the same nodes. Pseudonyms are in the order of the names, so that ties that are broken by name are broken in the
same way. Amounts, times, states and the structure stay. Free texts and the RM's settings are removed.

The content of each field is stated (`FIELDS`). A text in a field that is not listed is removed, and a test fails for
a field of a record or message without an entry. Two passes: the first collects the names, the second replaces them.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from typing import Final, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from yunishard.common.config import extra_config
from yunishard.common.config.acl import EVERYBODY, AclError, parse_acl
from yunishard.common.config.placement_rules import (
    NAME_LENGTH_MAX,
    RULES,
    Expression,
    ExpressionError,
    looks_like_expression,
)
from yunishard.common.messages import rm_messages
from yunishard.common.messages.journal_messages import SessionRecord
from yunishard.common.names import DEFAULT_PARTITION, NODE_PARTITION, ROOT, external_name
from yunishard.common.resources import QuantityError, parse_quantity
from yunishard.journal_tools.export_file import Transform, make_head, write_export
from yunishard.partition_worker.engine.application import AppEvent, AppState, Use
from yunishard.partition_worker.engine.durable_records import OperatorMark, Record, Removed
from yunishard.partition_worker.engine.placement import DEFAULT_QUEUE, DOT, NO_RULE_MATCHED
from yunishard.partition_worker.engine.queues.queue import NODE_SORT
from yunishard.partition_worker.journal.protocol import ReadableJournal

KINDS: Final = (
    *("user", "group", "namespace", "type", "queue", "application", "ask", "foreign", "node", "taskgroup"),
    *("partition", "resource", "tag", "value"),
)
"""The kinds of names, which begin the pseudonyms. A name of several kinds has a pseudonym of the first one."""

RM: Final = "rm-1"
"""In place of the id of the RM."""

REMOVED: Final = "(removed)"
"""In place of a free text."""

KEPT_NAMES: Final = frozenset(
    {
        *("", "*", ROOT, DEFAULT_PARTITION, DEFAULT_QUEUE.rpartition(".")[2], "@recovery@", "recovery", "nobody"),
        *("UNKNOWN", "true", "false"),
    }
)
"""Names that the scheduler itself uses."""

KEPT_RESOURCES: Final = re.compile(
    r"vcore|memory|pods|gpu|storage|ephemeral-storage|hugepages-[0-9A-Za-z]+|(nvidia\.com|amd\.com)/gpu"
)
"""Types of resources that are no names."""

KEPT_TAGS: Final = frozenset(
    {
        *("yunikorn.apache.org/requiredNode", "yunikorn.apache.org/creationTime", "creationTime", "foreign"),
        *("yunishard/nodeSelector", "yunishard/forbiddenNodes", "yunishard/tolerations", "yunishard/taints"),
        *("application.create.force", "application.stateaware.disable", "application.type", "namespace"),
        *("namespace.resourcequota", "namespace.resourceguaranteed", "namespace.resourcemaxapps"),
        *(NODE_SORT, "allocation.batch", NODE_PARTITION, "si/instance-type", "si/hostname", "si/rackname"),
        *("node.kubernetes.io/instance-type", "kubernetes.io/hostname"),
    }
)
"""Names of tags and attributes that the scheduler reads."""

_PROPERTIES: Final = re.compile(
    r"(application\.sort|priority|preemption|quota\.preemption|application\.unschedasks|node\.sort|allocation\.batch)[.a-z]*"
)
_SETTING: Final = re.compile(
    r"[-+]?[0-9.]{1,24}[a-z%]{0,2}|([0-9.]{1,12}[a-zµ]{1,2}){1,5}|fifo|fair|binpacking|stateaware|default|fence|enabled|disabled|delay"
    r"|static|true|false|spread|pack",
    re.IGNORECASE,
)
"""Values of settings that are no names."""

_WORDS: Final = frozenset(
    {
        *(str(state).lower() for state in (*AppState, *Use)),
        *("active", "draining", "soft", "hard", "guaranteed", "required-node", "quota"),
        *("allow", "deny", "fair", "binpacking", "test", "os", "ldap", "default"),
    }
)
"""Values of fields with a fixed vocabulary, in lower case."""


_TERMS: Final = re.compile(r"[^\s,()=!:]+")
_SYNTAX: Final = frozenset({"in", "notin", "NoSchedule", "NoExecute", "PreferNoSchedule", "*"})

KEPT_TEXTS: Final = frozenset({"", "allocation remove as per RM request", *(str(event) for event in AppEvent)})
"""Texts of messages that contain no names."""

_TEXTS: Final = (
    (re.compile(r"replacing allocationKey: (.+)"), "ask"),
    (re.compile(r"Node (.+) Removed"), "node"),
    (re.compile(r"Application (.+) Removed"), "application"),
)
"""Texts with one name in them."""

FIELDS: Final[Mapping[str, str]] = {
    # names
    **dict.fromkeys(("application_id", "applications"), "application"),
    **dict.fromkeys(("ask_key", "allocation_key", "preempt_allocation_keys", "replaces", "allocations"), "ask"),
    "AllocationRecord.key": "ask",
    "VictimRecord.key": "ask",
    "ForeignRecord.key": "ask",
    **dict.fromkeys(("node_id", "nodes"), "node"),
    **dict.fromkeys(("user", "users"), "user"),
    **dict.fromkeys(("groups", "charged_group"), "group"),
    **dict.fromkeys(("queue", "path", "queue_name", "requested_queue", "winner", "loser"), "path"),
    "QueueConfig.name": "queue",
    "PartitionConfig.name": "partition",
    **dict.fromkeys(("task_group", "task_group_name", "TaskGroupRecord.name"), "taskgroup"),
    "instance_type": "value",
    "object_id": "path",
    "reference_id": "path",
    # mappings
    **dict.fromkeys(
        (
            *("resources", "lost", "capacity", "placeholder_ask", "max_allocated", "amounts", "minimum", "lacking"),
            *("resource_per_alloc", "resource", "max_resources", "resource_weights"),
            *("Template.maximum", "Template.guaranteed", "QueueSettings.maximum", "QueueSettings.guaranteed"),
            *("ResourcesConfig.max", "ResourcesConfig.guaranteed"),
        ),
        "resources",
    ),
    **dict.fromkeys(("tags", "allocation_tags", "attributes"), "tags"),
    "properties": "properties",
    "stops": "stops",
    "cordons": "cordons",
    # texts with a syntax
    **dict.fromkeys(("submit_acl", "admin_acl", "admin_text"), "acl"),
    "PlacementRuleConfig.value": "rule-value",
    "FilterConfig.users": "user-list",
    "FilterConfig.groups": "group-list",
    # fixed words
    **dict.fromkeys(("gang_style", "gang_scheduling_style", "use", "entered"), "word"),
    **dict.fromkeys(("StatusRecord.state", "QueueRecord.state", "UpdatedApplication.state"), "word"),
    **dict.fromkeys(("PreemptionRecord.reason", "PartitionRecord.resolver"), "word"),
    **dict.fromkeys(("FilterConfig.type", "NodeSortConfig.type", "ResolverConfig.type"), "word"),
    "PlacementRuleConfig.name": "rule",
    # free texts
    **dict.fromkeys(("reason", "message", "problem"), "text"),
    **dict.fromkeys(("limit", "partition_name"), "blank"),
}
"""The content of a field: by `Struct.field`, or by the name of the field alone. Others are removed."""

_S = TypeVar("_S", bound=Struct)


class Anonymiser:
    """Collects names until `freeze`, and replaces them from then on."""

    def __init__(self) -> None:
        self._kinds: dict[str, int] = {}
        """By name: the index of its kind."""
        self.pseudonyms: dict[str, str] = {}
        """By name, once they are frozen."""
        self._by_lower: dict[str, str] = {}
        self._is_frozen = False
        self.texts_removed = 0

    def freeze(self) -> None:
        """Give every collected name its pseudonym."""
        names: dict[int, list[str]] = defaultdict(list)
        for name, kind in self._kinds.items():
            names[kind].append(name)
        for kind, found in names.items():
            width = len(str(len(found)))
            for number, name in enumerate(sorted(found), start=1):
                self.pseudonyms[name] = f"{KINDS[kind]}-{number:0{width}}"
        self._by_lower = {name.lower(): pseudonym for name, pseudonym in self.pseudonyms.items()}
        self._is_frozen = True

    @property
    def transform(self) -> Transform:
        """How an export is written with these names."""
        return Transform(self.change_record, self.change_struct, self.change_session, keeps_unknown=False)

    # Names ----------------------------------------------------------------------------------------------------------

    def name(self, kind: str, text: str) -> str:
        """The pseudonym of a name."""
        if text in KEPT_NAMES:
            return text
        if not self._is_frozen:
            rank = KINDS.index(kind)
            self._kinds[text] = min(rank, self._kinds.get(text, rank))
            return text
        if (found := self.pseudonyms.get(text)) is None:  # a field that the first pass did not read
            found = self.pseudonyms[text] = f"{kind}-new-{len(self.pseudonyms)}"
        return found

    def queue(self, text: str) -> str:
        """The pseudonym of one part of a path: that of a user, for example, if the queue is named after the user."""
        if text.lower() in KEPT_NAMES:
            return text
        plain = text.replace(DOT, ".")
        for name in (text, plain):
            if self._is_frozen and name in self.pseudonyms:
                return self.pseudonyms[name]
        if self._is_frozen and (found := self._by_lower.get(plain.lower()) or self._by_lower.get(text.lower())):
            return found
        return self.name("queue", text)

    def path(self, text: str) -> str:
        """A path of queues, or another name in a field that may hold one."""
        return ".".join(self.queue(part) for part in text.split("."))

    def partition(self, full_name: str, rm: str) -> str:
        """The full name of a partition of this RM, with another id of the RM."""
        return f"{RM}_{self.name('partition', external_name(rm, full_name))}"

    # Structs --------------------------------------------------------------------------------------------------------

    def change_record(self, record: Record) -> Record:
        """A record with other names."""
        if isinstance(record, Removed):
            key = record.key if isinstance(record.key, int) else self._change_key(record.kind, record.key)
            return replace(record, key=key)
        return self.change_struct(record)

    def _change_key(self, kind: str, key: str) -> str:
        match kind:
            case "Queue":
                return self.path(key)
            case "PreemptionCooldown":
                return " ".join(map(self.path, key.split(" ")))
            case "Node":
                return self.name("node", key)
            case "Rejection" | "Submission":
                return self.name("application", key)
            case "Preemption":
                at, _, rest = key.partition(" ")
                queue, _, ask = rest.partition(" ")
                return f"{at} {self.path(queue)} {self.name('ask', ask)}"
        return self.name("ask", key)

    def change_session(self, session: SessionRecord) -> SessionRecord:
        """The session without the RM's own settings, and without a configuration that is only prepared."""
        known = {one.key for one in extra_config.effective({})}
        settings = {key: value for key, value in session.settings.items() if key in known and _SETTING.fullmatch(value)}
        capabilities = [one for one in session.capabilities if one in rm_messages.CAPABILITIES]
        return replace(session, rm=RM, session="session-1", prepared=None, settings=settings, capabilities=capabilities)

    def change_struct(self, one: _S) -> _S:
        """A struct with other names, and all structs in it."""
        kind = type(one).__name__
        changes: dict[str, object] = {}
        for field in one.__struct_fields__:
            value = getattr(one, field)
            rule = FIELDS.get(f"{kind}.{field}") or FIELDS.get(field, "")
            changes[field] = self._change(rule, value, one)
        return replace(one, **changes)

    def _change(self, rule: str, value: object, of: Struct) -> object:
        """A value of a field that holds this; what has no rule is removed."""
        match value:
            case None | bool() | int() | float():
                return value
            case Struct():
                return self.change_struct(value)
            case Mapping():
                return self._change_mapping(rule, value)
            case list() | tuple() if rule in ("user-list", "group-list"):
                return tuple(self._change_list(rule.removesuffix("-list"), value))
            case list() | tuple():
                items = [self._change(rule, item, of) for item in value]
                return items if isinstance(value, list) else tuple(items)
            case str() if rule == "rule-value":
                return self._change_rule_value(getattr(of, "name", ""), value)
            case str():
                return _TEXT_RULES[rule](self, value) if rule in _TEXT_RULES and value else self._remove_text(value)
        raise TypeError(f"{type(of).__name__}: {type(value).__name__}")  # no field has anything else

    def _change_mapping(self, rule: str, value: Mapping[str, object]) -> Mapping[str, object]:
        texts = {key: text for key, text in value.items() if isinstance(text, str)}
        marks = {key: mark for key, mark in value.items() if isinstance(mark, OperatorMark)}
        match rule:
            case "resources":
                return self.change_resources(value)
            case "tags":
                return {self._change_tag_name(name): self._change_tag(name, text) for name, text in texts.items()}
            case "properties":
                return self.change_properties(texts)
            case "stops":
                return {self.path(path): self.change_struct(mark) for path, mark in marks.items()}
            case "cordons":
                return {self.name("node", node_id): self.change_struct(mark) for node_id, mark in marks.items()}
        return {}

    # Mappings -------------------------------------------------------------------------------------------------------

    def change_resources(self, amounts: Mapping[str, object]) -> dict[str, object]:
        """Amounts, or texts of quantities, with other names of unusual types."""
        found: dict[str, object] = {}
        for kind, amount in amounts.items():
            name = kind if KEPT_RESOURCES.fullmatch(kind) else self.name("resource", kind)
            if not isinstance(amount, str) or _is_quantity(amount, kind):
                found[name] = amount
        return found

    def _change_tag_name(self, name: str) -> str:
        return name if name in KEPT_TAGS or name.lower() in KEPT_TAGS else self.name("tag", name)

    def _change_tag(self, name: str, value: str) -> str:
        match name.lower():
            case "yunikorn.apache.org/requirednode" | "si/hostname" | "kubernetes.io/hostname":
                return self.name("node", value)
            case "yunishard/forbiddennodes":
                return ",".join(self.name("node", one.strip()) for one in value.split(","))
            case "yunishard/nodeselector" | "yunishard/tolerations" | "yunishard/taints":
                return _TERMS.sub(lambda found: self._change_term(found[0]), value)
            case "namespace.resourcequota" | "namespace.resourceguaranteed":
                return self._change_quota(value)
            case "namespace":
                return self.name("namespace", value)
            case "si/node-partition":
                return self.name("partition", value)
            case "application.type":
                return self.name("type", value)
            case known if name in KEPT_TAGS or known in KEPT_TAGS:
                return value if _SETTING.fullmatch(value) else self.name("value", value)
        return self.name("value", value)

    def _change_term(self, text: str) -> str:
        """A word of a selector, taint or toleration."""
        return text if text in _SYNTAX or text in KEPT_TAGS else self.name("value", text)

    def _change_quota(self, text: str) -> str:
        try:
            resources = msgspec.json.decode(text, type=dict[str, dict[str, dict[str, int | float]]])["resources"]
        except (msgspec.MsgspecError, KeyError, RecursionError):
            return self._remove_text(text)
        return msgspec.json.encode({"resources": self.change_resources(resources)}).decode()

    def change_properties(self, properties: Mapping[str, str]) -> dict[str, str]:
        """Properties of a queue."""
        found = {}
        for name, value in properties.items():
            is_known = _PROPERTIES.fullmatch(name) is not None
            is_plain = is_known and _SETTING.fullmatch(value)
            found[name if is_known else self.name("tag", name)] = value if is_plain else self.name("value", value)
        return found

    # Texts ----------------------------------------------------------------------------------------------------------

    def _change_list(self, kind: str, entries: Collection[str]) -> list[str]:
        """A list of a filter: names, or one expression, in whose place comes one that matches the same names."""
        (first, *others) = entries or ("",)
        if others or not looks_like_expression(first):
            return [self.name(kind, entry) for entry in entries]
        if not self._is_frozen:
            return []
        try:
            expression = Expression(first)
        except ExpressionError:
            return ["("]
        people = [name for name, rank in self._kinds.items() if rank <= KINDS.index("group")]
        matched = [
            self.pseudonyms[name] for name in people if len(name) < NAME_LENGTH_MAX and expression.found_in(name)
        ]
        return [f"^({'|'.join(sorted(matched))})$"] if matched else ["^$"]

    def _change_rule_value(self, rule: str, value: str) -> str:
        return self.path(value) if rule.lower() == "fixed" else self._change_tag_name(value)

    def change_acl(self, text: str) -> str:
        """An access control list; names that it ignores are left out."""
        try:
            acl = parse_acl(text)
        except AclError:
            return self._remove_text(text)
        if acl == EVERYBODY:
            return "*"
        users, groups = sorted(acl.users), sorted(acl.groups)
        names = ",".join(self.name("user", one) for one in users), ",".join(self.name("group", one) for one in groups)
        return f"{names[0]} {names[1]}" if groups else names[0]

    def change_text(self, text: str) -> str:
        """A message: kept if it is a fixed text, with another name if it has just one, otherwise removed."""
        if text in KEPT_TEXTS:
            return text
        if text.endswith(NO_RULE_MATCHED):
            return NO_RULE_MATCHED
        for pattern, kind in _TEXTS:
            if found := pattern.fullmatch(text):
                return text.replace(found[1], self.name(kind, found[1]))
        return self._remove_text(text)

    def _remove_text(self, text: str) -> str:
        self.texts_removed += self._is_frozen and bool(text)
        return REMOVED if text else ""


def _is_quantity(text: str, kind: str) -> bool:
    try:
        parse_quantity(text, resource_type=kind)
    except QuantityError:
        return text.lstrip("-").isdecimal()  # a sum beyond 64 bits
    return True


def _change_names(kind: str) -> Callable[[Anonymiser, str], str]:
    return lambda names, text: names.name(kind, text)


def _keep_word(_: Anonymiser, text: str) -> str:
    """A word of a fixed vocabulary; in a configuration, an operator may have written anything."""
    return text if re.fullmatch(r"[A-Za-z-]{1,24}", text) and text.lower() in _WORDS else REMOVED


_TEXT_RULES: Final[Mapping[str, Callable[[Anonymiser, str], str]]] = {
    **{kind: _change_names(kind) for kind in KINDS},
    "queue": Anonymiser.queue,
    "path": Anonymiser.path,
    "acl": Anonymiser.change_acl,
    "text": Anonymiser.change_text,
    "blank": lambda *_: "",
    "word": _keep_word,
    "rule": lambda _, text: text if text.lower() in RULES else REMOVED,
}
"""By what a field holds: the function that changes a text."""

# The whole journal ----------------------------------------------------------------------------------------------------


def collect_names(reader: ReadableJournal) -> tuple[Anonymiser, str]:
    """Read a journal, and give every name in it a pseudonym; return the id of its RM, too.

    Raises:
        JournalDamaged, OSError: it cannot be read.
    """
    names, rm = Anonymiser(), ""

    def find_rm(session: SessionRecord) -> SessionRecord:
        nonlocal rm
        rm = session.rm or rm
        return names.change_session(session)

    collect = Transform(names.change_record, names.change_struct, find_rm, keeps_unknown=False)
    write_export(lambda _: None, reader, make_head("", anonymised=True), collect)
    names.freeze()
    return names, rm
