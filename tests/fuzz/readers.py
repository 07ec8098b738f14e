"""Whatever takes bytes from outside and has no state: what it may say about those that make no sense, and no more.

Not here: machines (`arena.py`).
"""

import asyncio
import random
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from tests.builders import config
from tests.fuzz.examples import CONFIG, TWO_PARTITIONS, Voice, examples
from tests.fuzz.protobuf import requests
from tests.fuzz.words import TEXTS, Tree, bitten, confused, encoded, read
from tests.machines import config_of
from tests.properties.workload import LEAVES, TREES, Livelier
from tests.trial import START_S
from yunishard.broker.registry import RmRecord
from yunishard.broker.rm_records import decode_record
from yunishard.broker.sqlite_store import SqliteStore
from yunishard.common.config import extra_config
from yunishard.common.config.problems import ConfigError
from yunishard.common.config.validation import load
from yunishard.common.messages.control_messages import PrepareConfig
from yunishard.common.messages.journal_messages import TICK, SentMessage, SessionRecord, Step
from yunishard.common.messages.kinds import Message
from yunishard.common.messages.rm_messages import (
    AddApplicationRequest,
    AllocationRelease,
    Registered,
    RegisterResourceManager,
    Resume,
)
from yunishard.common.messages.session import Session
from yunishard.common.messages.wire import (
    Incoming,
    Outgoing,
    WireError,
    decode_body,
    decode_header,
    encode_body,
    encode_frames,
)
from yunishard.common.names import BROKER
from yunishard.common.settings import SettingsError
from yunishard.common.transport.curve_keys import (
    AllowListError,
    KeyFileError,
    KeyPair,
    parse_allow_list,
    read_pair,
    write_pair,
)
from yunishard.deploy.settings import resolve_settings
from yunishard.partition_worker.engine import durable_records
from yunishard.partition_worker.engine.durable_records import Record
from yunishard.partition_worker.engine.partition import Partition
from yunishard.partition_worker.engine.recording import list_everything
from yunishard.partition_worker.journal.database import JournalReader, decode_step, make_row
from yunishard.partition_worker.journal.files import Files, read_snapshot, write_snapshot
from yunishard.partition_worker.journal.sqlite_journal import SqliteJournal
from yunishard.partition_worker.partition_host import PartitionHost
from yunishard.partition_worker.recovery import JournalDamaged, Recovery, encode_snapshot, recover
from yunishard.rmproxy import grpc_conversion
from yunishard.rmproxy.grpc_manager import GrpcRegistry
from yunishard.rmproxy.grpc_streams import StatusError, StatusKind, parse_request
from yunishard.rmproxy.proxy import Proxy
from yunishard.rmproxy.si import scheduler_pb2 as si
from yunishard.sdk.session import ClientSession

VOICE: Final = Voice("mad", "s1", "mad_default")
OTHERS: Final = (
    "\t",
    "&a [*a]",
    "? ",
    "!!python/object:os.system",
    "1e999",
    ".nan",
    "[[[[[[",
    "{{",
    "|\n",
    "---\n",
    "#",
    "\x00",
    "'",
)


@dataclass(frozen=True, slots=True)
class Target:
    """Something that reads bytes."""

    seeds: Sequence[bytes]
    """Good ones."""
    read: Callable[[bytes], object]
    raises: tuple[type[Exception], ...] = ()
    """What it says about others."""
    structured: bool = False
    """Whether it is MessagePack."""


def targets(folder: Path) -> dict[str, Target]:
    """All of them, by name; the folder is for files."""
    return {**_messages(), **_texts(folder), **_durable(folder), **_requests(), **_conversations()}


def spoiled(rng: random.Random, target: Target) -> bytes:
    """Bytes for it, that make little sense."""
    data = rng.choice(target.seeds)
    for _ in range(rng.choice((1, 1, 2, 3))):
        choice = rng.random()
        if target.structured and choice < 0.6:
            data = encoded(confused(rng, read(data)))
        elif choice < 0.7:
            at = rng.randrange(len(data) + 1)
            what = rng.choice((*OTHERS, *TEXTS)).encode(errors="surrogatepass")
            data = data[:at] + what + data[at + rng.randrange(3) :]
        elif choice < 0.8:
            other = rng.choice(target.seeds)
            data = data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1) :]
        else:
            data = bitten(rng, data)
    return data


# What they are --------------------------------------------------------------------------------------------------------


def _messages() -> dict[str, Target]:
    """The header, and the body of every kind."""
    header = encode_frames(VOICE.header("Ack", seq=7, ack=3, ref="call"), b"")[1]
    found = {
        "header": Target([header], lambda data: decode_header([b"YSH1", data, b""]), (WireError,), structured=True)
    }
    for name, message in examples().items():
        kind = Message.kinds[name]
        found[f"body of {name}"] = Target(
            [encode_body(message)], lambda data, kind=kind: _decoded(kind, data), (WireError,), structured=True
        )
    return found


def _decoded(kind: type[Message], data: bytes) -> None:
    """What was read once can be encoded, and read again."""
    message = decode_body(kind, data)
    again = decode_body(kind, encode_body(message))
    assert encode_body(again) == encode_body(message)


def _texts(folder: Path) -> dict[str, Target]:
    """Files that people write."""
    keys = [f"{KeyPair.new().public} rm-1,test-*\n# nobody\n{KeyPair.new().public} *  # all\n".encode()]
    options = b"native: tcp://127.0.0.1:0\nallowed-rms: a, b\nlease-timeout: 10s\njournal-max: 1GiB\nephemeral: yes\n"
    extra = msgspec.msgpack.encode({"event.maxStreams": "5", "log.core.level": "-1", "health.checkInterval": "30s"})
    return {
        "configuration": Target(
            [CONFIG.encode(), TWO_PARTITIONS.encode()],
            lambda data: load(data.decode(errors="replace")),
            (ConfigError,),
        ),
        "settings": Target([options], lambda data: _settings(folder / "settings.yaml", data), (SettingsError,)),
        "allow-list": Target(keys, lambda data: parse_allow_list(data.decode(errors="replace")), (AllowListError,)),
        "key": Target([_key(folder)], lambda data: _pair(folder / "spoiled.key_secret", data), (KeyFileError,)),
        "extraConfig": Target([extra], _extra, structured=True),
    }


def _settings(file: Path, data: bytes) -> None:
    file.write_bytes(data)
    resolve_settings({"settings": str(file)}, {})


def _key(folder: Path) -> bytes:
    secret, *_ = [file for file in write_pair(folder, "good") if file.suffix == ".key_secret"]
    return secret.read_bytes()


def _pair(file: Path, data: bytes) -> None:
    file.write_bytes(data)
    file.chmod(0o600)
    read_pair(file)


def _extra(data: bytes) -> None:
    tree = read(data)
    values = {str(name): str(value) for name, value in tree.items()} if isinstance(tree, dict) else {}
    extra_config.read(values)
    list(extra_config.effective(values))
    extra_config.logger_levels(values)


def _durable(folder: Path) -> dict[str, Target]:
    """Files and their contents that a process of ours has written, and somebody or some disk has spoiled."""
    write_snapshot(folder / "good.snapshot", 7, [b"anything" * 9])
    facts = RmRecord(rm="a", session="s", registered_ns=1, call="c", generations={"a_default": 1})
    partitions = [_partition(seed) for seed in range(4)]
    encoded_snapshots = [b"".join(encode_snapshot(_host(partition), 3)) for partition in partitions]
    encoded_records = [msgspec.msgpack.encode(_records(partition)) for partition in partitions]
    steps = [
        _step(cause=7, received=2, acknowledged=1, records=Raw(encoded_records[0]), session=_session()),
        _step(),
    ]
    return {
        "step": Target(
            [encode_body(step) for step in steps],
            lambda data: Recovery().apply_step(decode_step(make_row(1, 1.5, TICK, data))),
            (JournalDamaged,),
            structured=True,
        ),
        "records": Target(
            encoded_records,
            lambda data: _recover(None, [_step(records=Raw(data), session=_session())]),
            (JournalDamaged,),
            structured=True,
        ),
        "snapshot file": Target(
            [(folder / "good.snapshot").read_bytes()],
            lambda data: _snapshot(folder / "spoiled", data),
            (JournalDamaged,),
        ),
        "snapshot": Target(encoded_snapshots, lambda data: _recover(data, []), (JournalDamaged,)),
        "parts of a snapshot": Target(
            [encoded(_parts(data)) for data in encoded_snapshots],
            lambda data: _recover(_joined(data), []),
            (JournalDamaged,),
            structured=True,
        ),
        "journal": Target([_journal(folder)], lambda data: _journal_read(folder, data), (JournalDamaged, OSError)),
        "facts": Target([msgspec.json.encode(facts)], decode_record, (msgspec.MsgspecError,)),
        "record": Target([_record(folder, facts)], lambda data: _record_read(folder, data), (OSError,)),
    }


def _partition(seed: int) -> Partition:
    """A partition in which much has happened."""
    rng, now = random.Random(seed), START_S
    partition = Partition(config(TREES[seed]), name=VOICE.partition, now=now)
    told: list[AllocationRelease] = []
    workload = Livelier(rng, leaves=LEAVES, told=told)
    for command in workload.start():
        partition.apply(command, now)
    for _ in range(120):
        step = workload.next_step()
        if isinstance(step, float):
            now += step
        else:
            partition.apply(step, now)
        partition.step(now, 3)
    return partition


def _host(partition: Partition) -> PartitionHost:
    host = PartitionHost(partition=VOICE.partition, epoch=1)
    host.partition = partition
    return host


def _records(partition: Partition) -> list[Record]:
    """Records of every kind: those of this partition, and those that come up rarely."""
    submission = durable_records.SubmissionRecord(submission=AddApplicationRequest("waits", "root.a"))
    release = AllocationRelease(application_id="waits")
    held = durable_records.HeldUpdateRecord(application_id="waits", number=1, release=release)
    cooldown = durable_records.CooldownRecord(winner="root.a", loser="root.b", at=START_S, cool_down_s=30.0)
    return [*list_everything(partition), durable_records.ReportRecord(), submission, held, cooldown]


def _session() -> SessionRecord:
    return SessionRecord(
        rm=VOICE.rm,
        session=VOICE.session,
        rollout=1,
        prepared=(VOICE.header("PrepareConfig"), PrepareConfig(rollout=2, config=config_of(CONFIG))),
        settings={"log.level": "INFO"},
        capabilities=["events"],
    )


def _step(number: int = 1, **fields: object) -> Step:
    return replace(Step(number=number, at=START_S, kind=TICK, told=[SentMessage(number, "News", b"x" * 50)]), **fields)


def _recover(snapshot: bytes | None, steps: list[Step]) -> None:
    recover(PartitionHost(partition=VOICE.partition, epoch=1), None if snapshot is None else [snapshot], steps)


def _parts(snapshot: bytes) -> list[Tree]:
    """The parts of a snapshot, which have their length before them."""
    found: list[Tree] = []
    while snapshot:
        end = 4 + int.from_bytes(snapshot[:4])
        found.append(read(snapshot[4:end]))
        snapshot = snapshot[end:]
    return found


def _joined(data: bytes) -> bytes:
    """The snapshot of these parts."""
    tree = read(data)
    parts = [encoded(part) for part in tree] if isinstance(tree, list) else [data]
    return b"".join(len(part).to_bytes(4) + part for part in parts)


def _snapshot(file: Path, data: bytes) -> None:
    file.write_bytes(data)
    list(read_snapshot(file, 7))


def _journal(folder: Path) -> bytes:
    (folder / "journal").mkdir()
    files = Files(folder / "journal", "mad_default")
    database = SqliteJournal(files, 1)
    database.append([encode_body(_step(number)) for number in range(1, 40)], fresh=True)
    database.close()
    return files.database.read_bytes()


def _journal_read(folder: Path, data: bytes) -> None:
    files = Files(folder, "mad_default")
    files.clear()
    files.database.write_bytes(data)
    with closing(JournalReader(files)) as reader:
        meta, _ = reader.open_snapshot()
        for _ in reader.read_steps(meta.begins):
            pass


def _record(folder: Path, facts: RmRecord) -> bytes:
    file = folder / "good.record"
    with closing(SqliteStore(file)) as store:
        store.begin(7)
    with closing(sqlite3.connect(file, isolation_level=None)) as opened:
        opened.execute("INSERT INTO managers VALUES ('a', ?)", (msgspec.json.encode(facts).decode(),))
        opened.execute("INSERT INTO texts VALUES ('d', ?)", (CONFIG.encode(),))
        opened.execute("INSERT INTO versions VALUES ('a', 1, 'c', 1, 'author', 'update', 'b', 9, 'd')")
        opened.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return file.read_bytes()


def _record_read(folder: Path, data: bytes) -> None:
    file = folder / "spoiled.record"
    for suffix in ("", "-wal", "-shm"):
        file.with_name(file.name + suffix).unlink(missing_ok=True)
    file.write_bytes(data)
    with closing(SqliteStore(file)) as store:
        store.begin(8)
        store.read_records()
        store.read_histories()


def _requests() -> dict[str, Target]:
    """Protobuf, to our own messages."""
    kinds = {
        "RegisterResourceManager": lambda data: grpc_conversion.read_registration(
            parse_request(si.RegisterResourceManagerRequest, data)
        ),
        "UpdateNode": lambda data: grpc_conversion.read_nodes(parse_request(si.NodeRequest, data)),
        "UpdateApplication": lambda data: grpc_conversion.read_applications(parse_request(si.ApplicationRequest, data)),
        "UpdateAllocation": lambda data: grpc_conversion.read_allocations(parse_request(si.AllocationRequest, data)),
    }
    good = requests(VOICE)
    return {
        f"request of {name}": Target(
            good[f"/si.v1.Scheduler/{name}"], lambda data, kind=kind: _decoded(*_passed_on(kind(data))), (StatusError,)
        )
        for name, kind in kinds.items()
    }


def _passed_on(message: Message) -> tuple[type[Message], bytes]:
    return type(message), encode_body(message)


def _conversations() -> dict[str, Target]:
    """Who hears words in frames: the bytes are the numbers of a header, and a body."""
    seeds = [
        encoded([[name, VOICE.partition, 1, 0, "", 0], read(encode_body(message))])
        for name, message in examples().items()
    ]
    return {
        "session": Target(seeds, lambda data: _hear_session(*_halves(data)), (WireError,), structured=True),
        "client-session": Target(seeds, lambda data: _hear_client_session(*_halves(data)), structured=True),
        "grpc": Target(seeds, lambda data: asyncio.run(_hear_grpc(*_halves(data))), structured=True),
        "front": Target(seeds, lambda data: _hear_front(*_halves(data)), (WireError,), structured=True),
    }


def _halves(data: bytes) -> tuple[bytes, bytes]:
    match read(data):
        case [[str(kind), partition, seq, ack, ref, life, *_], body, *_]:
            return encoded([kind, VOICE.rm, partition, VOICE.session, seq, ack, 0, ref, life]), encoded(body)
    return data, data[::-1]


def _hear_session(header: bytes, body: bytes) -> None:
    session = Session(rm_id=VOICE.rm, session=VOICE.session)
    for name in ("Registered", "NodeResponse"):
        _, _, good = VOICE.says(examples()[name])
        session.receive(VOICE.header(name, partition=""), good)
    session.receive(decode_header([b"YSH1", header, body]), body)
    session.acknowledgements()


def _hear_client_session(header: bytes, body: bytes) -> None:
    """It says itself what is wrong, and goes on or is over."""
    session = ClientSession(examples()["RegisterResourceManager"], session=VOICE.session)  # type: ignore[arg-type]
    session.start()
    session.receive(VOICE.says(examples()["Registered"], partition=""))
    for frames in ([b"YSH1", header, body], [header, body]):
        session.receive(frames)
        while session.next_result() is not None:
            pass
    session.take_outgoing()


async def _hear_grpc(header: bytes, body: bytes) -> None:
    """Words for a resource manager over gRPC. Those without a header never come so far."""
    try:
        said = decode_header([b"YSH1", header, body])
    except WireError:
        return
    registry = GrpcRegistry(lambda incoming: None, new_session=lambda: VOICE.session)
    request = examples()["RegisterResourceManager"]
    assert isinstance(request, RegisterResourceManager)
    joining = asyncio.create_task(registry.register(replace(request, rm_id=VOICE.rm)))
    await asyncio.sleep(0)
    to = f"grpc:{VOICE.rm}"
    registered = Registered(partitions=[VOICE.partition])
    registry.receive(Outgoing(to, VOICE.header("Registered", partition=""), encode_body(registered)))
    await joining
    registry.receive(Outgoing(to, said, body))
    await asyncio.sleep(0)
    registry.stop(StatusKind.STOPPING.make())


def _hear_front(header: bytes, body: bytes) -> None:
    """Whatever the broker says: it cannot be followed, or it can."""
    front = Proxy()
    register, resume = VOICE.registers(), VOICE.says(Resume(), partition="")
    for frames in (register, resume):
        front.handle(Incoming("native:00", decode_header(frames), frames[2]), 1.0)
    front.handle(Incoming(BROKER, decode_header([b"YSH1", header, body]), body), 2.0)
    front.tick(3.0)
    front.goodbye()
