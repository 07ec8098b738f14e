"""CURVE keys: their files and fingerprints, the options of sockets, and the allow-list of RMs.

A pair is two files in the format of CZMQ's certificates, which libraries of other languages read: `NAME.key` is public,
`NAME.key_secret` holds both keys. The server's pair is called `server`. An RM needs its own secret file and the
server's public one in the same directory; `server-HOST.key` is that of the server on this host alone.

Keys are Z85 text of 40 characters. Logs and commands show fingerprints; a secret key is passed to ZeroMQ, and stored
nowhere else. Not here: the authentication of connections (`rmproxy/authentication.py`).
"""

import hashlib
import os
import re
import stat
import struct
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Final, Self

import zmq
from zmq.utils import z85

from yunishard.common.names import RM_ID, compile_rm_ids, parse_rm_ids
from yunishard.common.process.folders import is_exposed

SERVER: Final = "server"
"""The name of the server's pair."""

HOST: Final = "host"
"""The name of a host's pair, for the connections between hosts."""

PUBLIC_SUFFIX: Final = ".key"
SECRET_SUFFIX: Final = ".key_secret"  # noqa: S105 - the end of a file's name

FILE_BYTES_MAX: Final = 4096
"""A key file has some hundred bytes; the rest of a larger file is not read."""

FINGERPRINT_DIGITS: Final = 16
"""64 bits: too many for two keys with the same fingerprint by accident. A fingerprint grants no access."""

_ENTRY: Final = re.compile(r'^[ \t]*(public|secret)-key[ \t]*=[ \t]*"([^"\n]*)"[ \t]*$', re.MULTILINE)


class KeyFileError(OSError):
    """A key file that cannot be used; the text names the file and the remedy, never its content."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A secret key and its public key."""

    public: str
    secret: str = field(repr=False)

    @classmethod
    def new(cls) -> Self:
        """Return a new pair. The public key does not begin like a command-line option."""
        while True:
            public, secret = (key.decode() for key in zmq.curve_keypair())
            if not public.startswith("-"):
                return cls(public, secret)


@lru_cache(maxsize=4096)
def fingerprint(public: str) -> str:
    """Return the short form of a public key: the first hexadecimal digits of its SHA-256."""
    return hashlib.sha256(public.encode()).hexdigest()[:FINGERPRINT_DIGITS]


# Files ----------------------------------------------------------------------------------------------------------------


def read_public(file: Path) -> str:
    """Return the public key in a file of either kind.

    Raises:
        KeyFileError: it cannot be read, or holds none.
    """
    return _key_in(file, _text_of(file), "public")


def read_pair(file: Path) -> KeyPair:
    """Return the pair in a secret file.

    Raises:
        KeyFileError: it cannot be read, holds no secret key, or others may read it too.
    """
    text = _text_of(file)
    secret = _key_in(file, text, "secret")
    found = file.stat()
    if is_exposed(found):
        mode = stat.S_IMODE(found.st_mode)
        raise KeyFileError(f"{file}: others can read this secret key (mode {mode:o}): chmod 600, or make a new one")
    return KeyPair(zmq.curve_public(secret.encode()).decode(), secret)


def server_file(place: Path) -> Path:
    """Return the server's secret file: `place` itself, or the one in this directory."""
    return place / f"{SERVER}{SECRET_SUFFIX}" if place.is_dir() else place


def host_file(folder: Path) -> Path:
    """Return the secret file of a host with this directory of keys."""
    return folder / f"{HOST}{SECRET_SUFFIX}"


def write_pair(folder: Path, name: str) -> tuple[Path, Path]:
    """Make a pair and write its two files, readable for all and for the owner only; return their paths.

    Raises:
        FileExistsError: one of them is there already; nothing has changed.
        OSError: they cannot be written.
    """
    pair = KeyPair.new()
    public, secret = folder / f"{name}{PUBLIC_SUFFIX}", folder / f"{name}{SECRET_SUFFIX}"
    if public.exists():
        raise FileExistsError(f"{public}: there is one already")
    write_new(secret, 0o600, _certificate(f"Keep this file to yourself: secret key of {name}.", pair))
    try:
        write_new(public, 0o644, _certificate(f"Public key of {name}.", KeyPair(pair.public, "")))
    except OSError:
        secret.unlink()
        raise
    return public, secret


def _certificate(about: str, pair: KeyPair) -> str:
    secret = f'    secret-key = "{pair.secret}"\n' if pair.secret else ""
    return f'#   {about}\n\nmetadata\ncurve\n    public-key = "{pair.public}"\n{secret}'


def write_new(file: Path, mode: int, text: str) -> None:
    """Write a new file with this mode, durably.

    Raises:
        FileExistsError: the file exists; it has not changed.
        OSError: it cannot be written.
    """
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError:
        raise FileExistsError(f"{file}: there is one already") from None
    with os.fdopen(descriptor, "w", encoding="ascii") as opened:
        os.fchmod(descriptor, mode)  # independent of the umask
        opened.write(text)
        opened.flush()
        os.fsync(descriptor)


def _text_of(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return opened.read(FILE_BYTES_MAX).decode("ascii", errors="replace")
    except OSError as error:
        raise KeyFileError(f"{file}: cannot be read: {(error.strerror or str(error)).lower()}") from None


def _key_in(file: Path, text: str, kind: str) -> str:
    keys: dict[str, str] = dict(_ENTRY.findall(text))
    if is_key(keys.get(kind, "")):
        return keys[kind]
    hint = f"the one that ends in {SECRET_SUFFIX} has it" if "public" in keys else "`yunishard keys new` makes one"
    raise KeyFileError(f"{file}: holds no {kind} key ({hint})")


# Sockets --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClientKeys:
    """The keys with which an RM connects to a port with keys."""

    own: KeyPair
    server: str
    """The server's public key."""

    @classmethod
    def beside(cls, file: Path, host: str = "") -> Self:
        """Read the RM's secret file, and in the same directory the server's public one: that of the host if there is
        one, or else that of all hosts.

        Raises:
            KeyFileError: one of the two cannot be used.
        """
        own = file.parent / f"{SERVER}-{host}{PUBLIC_SUFFIX}"
        return cls(read_pair(file), read_public(own if own.exists() else file.parent / f"{SERVER}{PUBLIC_SUFFIX}"))

    def apply(self, socket: "zmq.Socket[bytes]") -> None:
        """Make a socket use these keys; before it connects."""
        socket.curve_publickey = self.own.public.encode()
        socket.curve_secretkey = self.own.secret.encode()
        socket.curve_serverkey = self.server.encode()


# The allow-list -------------------------------------------------------------------------------------------------------

# The allow-list maps public keys to the RMs that a client with this key may act for. It has a line for each key; other
# lines are empty or begin with `#`. The comment may begin with the day on which the key was allowed:
#
#     rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7  rm-1,test-*  # 2026-11-21 the cluster upstairs

KEYS_MAX: Final = 10_000
"""Keys in a list; one with more is refused as a whole."""

LIST_BYTES_MAX: Final = 4 << 20

ALLOWED: Final = "allowed"
"""Name of the allow-list beside the server's secret key."""

_KEY: Final = re.compile(r"[0-9a-zA-Z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}")
_LINE: Final = re.compile(
    r"(?P<key>\S{40})[ \t]+(?P<ids>[^#]+?)"
    r"(?:[ \t]+#[ \t]*(?:(?P<since>\d{4}-\d{2}-\d{2})(?:[ \t]+|$))?(?P<comment>.*))?"
)


class AllowListError(ValueError):
    """A list that cannot be used; the text begins with the number of the line."""


@dataclass(frozen=True)
class AllowedKey:
    """A key with the RMs that it may act for."""

    key: str
    rm_ids: tuple[str, ...]
    comment: str = ""
    since: str = ""
    """The day on which it was allowed, as in 2026-11-21; empty if the line has none."""

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return compile_rm_ids(self.rm_ids)

    def allows(self, rm: str) -> bool:
        """Whether a client with this key may act for this RM."""
        return RM_ID.fullmatch(rm) is not None and self._pattern.fullmatch(rm) is not None

    def line(self) -> str:
        """Return the line of the list."""
        about = " ".join(filter(None, (self.since, self.comment)))
        return f"{self.key}  {','.join(self.rm_ids)}" + (f"  # {about}" if about else "")


AllowList = dict[str, AllowedKey]
"""The allowed keys, by public key."""


def is_key(text: str) -> bool:
    """Whether this can be a public or secret key in Z85. Five characters encode 32 bits, so some are too large."""
    if not _KEY.fullmatch(text):
        return False
    try:
        z85.decode(text)
    except struct.error:
        return False
    return True


def read_allow_list(file: Path) -> str:
    """Return the text of an allow-list.

    Raises:
        AllowListError: it is too long, or not UTF-8.
        OSError: it cannot be read.
    """
    with file.open("rb") as opened:
        text = opened.read(LIST_BYTES_MAX + 1)
    if len(text) > LIST_BYTES_MAX:
        raise AllowListError(f"line 1: more than {LIST_BYTES_MAX} bytes")
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        number = text.count(b"\n", 0, error.start) + 1
        raise AllowListError(f"line {number}: not UTF-8 text") from None


def parse_allow_list(text: str) -> AllowList:
    """Parse the text of an allow-list.

    Raises:
        AllowListError: an invalid line, a repeated key, or too many keys.
    """
    entries: AllowList = {}
    for number, line in enumerate(text.splitlines(), start=1):
        found = parse_allow_line(line, number)
        if found is None:
            continue
        if found.key in entries:
            raise AllowListError(f"line {number}: this key is there already: put all its RM ids in one line")
        entries[found.key] = found
    if len(entries) > KEYS_MAX:
        raise AllowListError(f"line 1: {len(entries)} keys, at most {KEYS_MAX} are possible")
    return entries


def parse_allow_line(line: str, number: int = 1) -> AllowedKey | None:
    """Parse a line; None if it is empty or a comment.

    Raises:
        AllowListError: the line is invalid.
    """
    text = line.strip()
    if not text or text.startswith("#"):  # no key begins so: it would be too large a number
        return None
    match = _LINE.fullmatch(text)
    if match is None or not is_key(match["key"]):
        raise AllowListError(f"line {number}: expected a public key of 40 characters, RM ids, and maybe # a comment")
    try:
        rm_ids = parse_rm_ids(match["ids"])
    except ValueError as error:
        raise AllowListError(f"line {number}: {error}") from None
    return AllowedKey(match["key"], rm_ids, match["comment"] or "", match["since"] or "")
