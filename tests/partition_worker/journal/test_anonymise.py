"""An anonymised journal has no name of the original, and is otherwise the same."""

import random
import string
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, get_args, get_type_hints

import msgspec
import pytest
from msgspec import Struct
from msgspec.structs import replace

from tests.builders import PROVIDED_CREATE, apps, asks, config, foreign, gone, nodes, released
from tests.invariants import check
from tests.machines import PARTITION
from tests.partition_worker.journal.session import Session, preempting
from yunishard.cli.main import main
from yunishard.common.config.model import FilterConfig, LimitConfig, PartitionConfig, PlacementRuleConfig
from yunishard.common.messages.control_messages import Settings
from yunishard.common.messages.journal_messages import SessionRecord
from yunishard.common.messages.kinds import News
from yunishard.common.messages.query_messages import Actor
from yunishard.common.messages.rm_messages import Allocation
from yunishard.journal_tools.anonymise import FIELDS, REMOVED, Anonymiser
from yunishard.journal_tools.replay import replay_until, restore, verify_partition
from yunishard.journal_tools.sources import find_journal
from yunishard.journal_tools.views import VIEWS, read_all
from yunishard.partition_worker.engine import durable_records
from yunishard.partition_worker.engine.durable_records import Removed

HANDLED: Final = frozenset(
    {"HeldUpdateRecord", "Removed", "SessionRecord", "Header", "PrepareConfig", "PredicatesArgs"}
)
"""Structs whose texts have code of their own, or are not in a journal."""

KINDS: Final = ("applications", "asks", "nodes", "queues")


@dataclass
class Names:
    """Names that occur nowhere else, whatever they are for."""

    rng: random.Random
    given: list[str] = field(default_factory=list)

    def new(self, alphabet: str = string.ascii_lowercase, size: int = 11) -> str:
        self.given.append("zq" + "".join(self.rng.choices(alphabet, k=size)))
        return self.given[-1]


def run(*words: str) -> int:
    return main(["journal", *words])


def random_session(rng: random.Random, names: Names) -> Session:
    """A session in which everything that can have a name has one."""
    new = names.new
    users, groups, racks, queues = ([new() for _ in range(4)] for _ in range(4))
    gpu, tag, rack = f"{new()}.com/gpu", new(), new()
    one = Session(random_config(rng, names, users, groups, queues, gpu=gpu, tag=tag))
    secret = new(string.ascii_letters)
    one.put(Settings(values={"secret": secret, "log.level": secret, "event.maxStreams": "7"}, capabilities=[new()]))
    ids = [new() for _ in range(3)]
    taints = f"tag.yunishard/taints={rack}={new()}:PreferNoSchedule"
    one.tell(0, nodes(*(f"{node} memory=60 {gpu}=9 tag.{rack}={rng.choice(racks)} {taints}" for node in ids)))
    one.tell(0, foreign(f"{new()} {ids[0]} memory=2"))
    jobs = [new() for _ in range(5)]
    one.tell(
        1,
        apps(
            *(
                f"{job} root.{rng.choice((*queues, new()))} user={rng.choice(users)} groups={rng.choice(groups)} "
                f"tag.namespace={new()} tag.{tag}={rng.choice(queues)} tag.{new()}={new()} tag.application.type={new()}"
                for job in jobs
            )
        ),
    )
    known: list[str] = []
    for at in range(2, 30, 2):
        known.append(f"{rng.choice(jobs)} {new()}")
        flags = (
            *("victim", "preemptor", f"required={ids[1]}", f"tag.{new()}={new()}"),
            f"tag.yunishard/forbiddenNodes={ids[0]},{ids[1]}",
            f"tag.yunishard/nodeSelector={rack}!={racks[0]}",
        )
        one.tell(at, asks(f"{known[-1]} memory={rng.randint(1, 30)} {rng.choice(flags)}"))
        if rng.random() < 0.3:
            one.tell(at + 1, released(rng.choice(known)))
    operator, now = Actor(user=new(), scheduler_admin=True), one.partition.now
    one.partition.stop_queue(f"root.{queues[0]}", f"because of {new()}", operator, now)
    one.partition.cordon_node(ids[0], f"because of {new()}", operator, now)
    return one.tell(70, asks(f"{new()} {new()} memory=1"), gone(jobs[0]), apps(f"{new()} root user={new()}"))


def random_config(
    rng: random.Random, names: Names, users: list[str], groups: list[str], queues: list[str], *, gpu: str, tag: str
) -> PartitionConfig:
    new = names.new
    leaves = (
        f"root.{path} guaranteed=memory:{rng.randint(1, 9)} max=memory:{rng.randint(20, 90)},{gpu}:50"
        for path in queues
    )
    wanted = config(
        f"root adminacl={users[0]},{users[1]} limit.user.{users[0]}=memory:900; {'; '.join(leaves)}; "
        f"root.{new()} parent template.max=memory:60 template.{new()}={new()} submitacl={users[2]} "
        "application.sort.policy=fifo",
        rules=(
            PlacementRuleConfig(name="tag", value=tag, create=True, filter=FilterConfig(users=(f"^{users[0]}.*",))),
            PlacementRuleConfig(name="fixed", value=f"root.{queues[0]}", filter=FilterConfig(groups=(groups[0],))),
            PROVIDED_CREATE,
        ),
    )
    limit = LimitConfig(limit=f"{new()} of {new()}", users=(users[1],), groups=(groups[1],), max_applications=40)
    return replace(wanted, queues=(replace(wanted.root, limits=(*wanted.root.limits, limit)),))


def shape(path: Path) -> dict[str, Counter[tuple[object, ...]]]:
    """The rows of all tables without names."""
    image = read_all(find_journal(str(path), state=None, store=None)).recovery.image
    shapes = {}
    for kind in KINDS:
        rows = VIEWS[kind][0](image)
        shapes[kind] = Counter(tuple(_without_names(cell) for cell in row) for row in rows)
    return shapes


def _without_names(cell: object) -> object:
    if isinstance(cell, dict):
        return tuple(sorted(cell.values()))
    return cell if not isinstance(cell, str) or cell[:1].isupper() or cell in ("pending", "allocated") else bool(cell)


@pytest.mark.parametrize("seed", range(12))
def test_none_of_the_names_is_in_an_anonymised_export(tmp_path: Path, seed: int) -> None:
    names = Names(random.Random(seed))
    one = random_session(names.rng, names)
    journal = one.write(tmp_path, snapshot_after=names.rng.choice((0, len(one.steps))))
    target, mapping = tmp_path / "bug.jsonl", tmp_path / "names.json"
    assert run("export", str(journal), "--anonymise", "--output", str(target), "--names", str(mapping)) == 0
    whole = tmp_path / "whole.jsonl"
    assert run("export", str(journal), "--complete", "--output", str(whole)) == 0
    written = whole.read_text()
    assert sum(name in written for name in names.given) > 0.5 * len(names.given)
    assert shape(whole) == shape(journal)
    text = target.read_text().lower()
    assert [name for name in names.given if name.lower() in text] == []
    found = msgspec.json.decode(mapping.read_bytes(), type=dict[str, str])
    assert set(found.values()) & set(names.given)
    assert run("verify", str(target), "--restore") == 0
    replay = replay_until(find_journal(str(target), state=None, store=None))
    partition = restore(replay.recovery, PARTITION)
    assert verify_partition(partition)[1] == []
    check(partition)
    assert shape(target) == shape(journal)


def test_every_field_with_a_text_has_a_rule() -> None:
    kinds = (*get_args(durable_records.AnyRecord), *(one for one in News.__subclasses__()))
    without = {
        f"{of.__name__}.{name}"
        for of, name in texts_in(*kinds)
        if of.__name__ not in HANDLED and f"{of.__name__}.{name}" not in FIELDS and name not in FIELDS
    }
    assert without == set()


def texts_in(*kinds: object) -> Iterator[tuple[type[Struct], str]]:
    """The fields of these structs, and of those in them, that hold texts."""
    seen: set[object] = set()
    waiting = list(kinds)
    while waiting:
        kind = waiting.pop()
        if not (isinstance(kind, type) and issubclass(kind, Struct)):
            waiting += get_args(kind)
        elif kind not in seen:
            seen.add(kind)
            for name, hint in get_type_hints(kind).items():
                if name in kind.__struct_fields__:
                    waiting.append(hint)
                    if holds_text(hint):
                        yield kind, name


def holds_text(hint: object) -> bool:
    return hint is str or any(map(holds_text, get_args(hint)))


def frozen(*names: tuple[str, str]) -> Anonymiser:
    one = Anonymiser()
    for kind, name in names:
        one.name(kind, name)
    one.freeze()
    return one


def test_pseudonyms_are_in_the_order_of_the_names() -> None:
    one = frozen(*(("ask", f"k{number}") for number in range(11, 0, -1)))
    assert [one.name("ask", name) for name in ("k1", "k10", "k11", "k2")] == ["ask-01", "ask-02", "ask-03", "ask-04"]


def test_a_name_of_two_kinds_has_one_pseudonym() -> None:
    one = frozen(("queue", "alice"), ("user", "alice"), ("user", "A.b"))
    assert one.path("root.alice.a_dot_b") == f"root.{one.name('user', 'alice')}.{one.name('user', 'A.b')}"
    assert one.name("user", "alice") == "user-2"


def test_selectors_and_taints_still_name_the_attributes() -> None:
    one = Anonymiser()
    node = durable_records.NodeRecord(
        node_id="n", rank=1, capacity={}, attributes={"zone": "a", "yunishard/taints": "gpu=a100:NoSchedule"}
    )
    ask = Allocation(
        allocation_tags={
            "yunishard/nodeSelector": "zone in (a,b),gpu!=a100,!spot",
            "yunishard/tolerations": "gpu=a100:NoSchedule,*:NoExecute",
        }
    )
    one.change_record(node)
    one.change_struct(ask)
    one.freeze()
    changed = one.change_record(node)
    assert isinstance(changed, durable_records.NodeRecord)
    tags = one.change_struct(ask).allocation_tags
    (zone, a), (_, taints) = changed.attributes.items()
    gpu, a100 = taints.removesuffix(":NoSchedule").split("=")
    b, spot = one.name("value", "b"), one.name("value", "spot")
    assert tags["yunishard/nodeSelector"] == f"{zone} in ({a},{b}),{gpu}!={a100},!{spot}"
    assert tags["yunishard/tolerations"] == f"{gpu}={a100}:NoSchedule,*:NoExecute"


def test_a_filter_by_expression_selects_the_same_users() -> None:
    one = frozen(("user", "dev-1"), ("user", "dev-2"), ("user", "ops"), ("group", "devices"))
    changed = one.change_struct(FilterConfig(users=("^dev",)))
    expected = "|".join((one.name("group", "devices"), one.name("user", "dev-1"), one.name("user", "dev-2")))
    assert changed.users == (f"^({expected})$",)
    assert one.change_struct(FilterConfig(users=("^nobody-else",))).users == ("^$",)


def test_texts_are_removed_unless_they_are_fixed() -> None:
    one = frozen(("node", "n1"), ("ask", "k1"))
    known = "allocation remove as per RM request"
    assert [
        one.change_text(text) for text in (known, "Node n1 Removed", "replacing allocationKey: k1", "alice was here")
    ] == [known, "Node node-1 Removed", "replacing allocationKey: ask-1", REMOVED]
    assert one.texts_removed == 1


def test_quotas_of_namespaces_keep_their_amounts() -> None:
    one = frozen(("resource", "acme/fpga"), ("namespace", "shop"))
    tags = {
        "namespace": "shop",
        "namespace.resourcequota": '{"resources":{"memory":{"value":9},"acme/fpga":{"value":1}}}',
    }
    record = durable_records.ForeignRecord(key="k", node_id="n", resources={}, created_ns=0, tags=tags)
    changed = one.change_record(record)
    assert isinstance(changed, durable_records.ForeignRecord)
    assert changed.tags == {
        "namespace": "namespace-1",
        "namespace.resourcequota": '{"resources":{"memory":{"value":9},"resource-1":{"value":1}}}',
    }


@pytest.mark.parametrize(
    ("kind", "key", "expected"),
    [
        ("Queue", "root.q", "root.queue-1"),
        ("Node", "n1", "node-1"),
        ("Reservation", "k1", "ask-1"),
        ("Rejection", "app", "application-1"),
        ("PreemptionCooldown", "root.q root", "root.queue-1 root"),
        ("Preemption", "1.5 root.q k1", "1.5 root.queue-1 ask-1"),
        ("Application", 3, 3),
    ],
)
def test_removals_name_the_same_objects(kind: str, key: str | int, expected: str | int) -> None:
    one = frozen(("queue", "q"), ("node", "n1"), ("ask", "k1"), ("application", "app"))
    assert one.change_record(Removed(kind=kind, key=key)) == Removed(kind=kind, key=expected)


def test_the_settings_of_the_rm_are_removed() -> None:
    session = SessionRecord(
        rm="acme",
        session="s",
        settings={"token": "x", "event.maxStreams": "7", "log.level": "what"},
        capabilities=["events", "x"],
    )
    assert frozen().change_session(session) == SessionRecord(
        rm="rm-1", session="session-1", settings={"event.maxStreams": "7"}, capabilities=["events"]
    )


def test_a_name_that_came_after_the_first_pass_is_replaced_too() -> None:
    one = frozen(("user", "bob"))
    assert one.name("user", "eve") == one.name("user", "eve") == "user-new-1"


def test_a_story_is_the_same_with_other_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal, target, mapping = preempting().write(tmp_path), tmp_path / "bug.jsonl.gz", tmp_path / "names.json"
    assert run("export", str(journal), "--anonymise", "--output", str(target), "--names", str(mapping)) == 0
    names = msgspec.json.decode(mapping.read_bytes(), type=dict[str, str])
    pseudonym = next(key for key, name in names.items() if name == "web-1")
    capsys.readouterr()
    assert run("story", str(journal), "web-1") == run("story", str(target), pseudonym) == 0
    lines = capsys.readouterr().out.splitlines()
    original, anonymised = lines[: len(lines) // 2], lines[len(lines) // 2 :]
    for new, name in sorted(names.items(), key=lambda item: -len(item[0])):
        anonymised = [line.replace(new, name) for line in anonymised]
    assert anonymised == original
