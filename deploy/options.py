"""Every static setting: its name, what it means, and what holds when nobody says anything.

One list, from which the help of `yunishard up`, the names in the settings file and in the environment, and the table
of `yunishard settings` are made, so that they cannot differ.

Not here: whether a value makes sense and which source wins (`settings.py`), and the settings that a resource manager
sends for itself (`common/extra_config.py`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from common.process import LOG_LEVELS

SAME_HIERARCHY: Final = ("off", "warn", "enforce")

TOKEN: Final = "token"  # noqa: S105 - the way, no secret
CERTIFICATE: Final = "certificate"
PROXY: Final = "proxy"
WAYS: Final = (TOKEN, CERTIFICATE, PROXY)
"""How somebody can say over REST who they are, in the order in which they are looked for."""

YES_NO: Final = "true|false"
"""The metavar of what is or is not; on the command line its flag alone says that it is, unless that is the default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A setting: `--log-level` on the command line, YUNISHARD_LOG_LEVEL in the environment, `log-level` in the file."""

    name: str
    metavar: str
    about: str
    default: str = ""
    group: str
    """The heading it stands under in the help."""

    @property
    def flag(self) -> str:
        """As it is written on the command line."""
        return f"--{self.name.rpartition('.')[2]}"

    @property
    def variable(self) -> str:
        """Its name in the environment."""
        return f"YUNISHARD_{self.flag[2:].upper().replace('-', '_')}"


_QUEUES: Final = "queues"
_PORTS: Final = "ports"
_TLS: Final = "TLS (certificate chains and keys are PEM files)"
_KEYS: Final = "keys of the native port (`yunishard keys` makes them)"
_WHO: Final = "who may"
_ASKS: Final = "who asks over REST (see docs/security.md)"
_MANUAL: Final = "for tests and teaching"
_PLUGINS: Final = "plug-ins"
_WAITING: Final = "asks that wait"
_BOUNDS: Final = "how much there may be"
_LOST: Final = "what is lost, and when"
_KEPT: Final = "what is kept, and told"
_PAGES: Final = "what else the REST port has"

_ALL: Final = (
    Option(
        name="config",
        metavar="FILE",
        group=_QUEUES,
        about="queues for resource managers that send none, watched for changes (default: a built-in default queue)",
    ),
    Option(
        name="queues.same-hierarchy",
        metavar="|".join(SAME_HIERARCHY),
        group=_QUEUES,
        default="warn",
        about="what to do about a queue that has another parent in another partition (default: warn)",
    ),
    Option(
        name="native",
        metavar="tcp://HOST:PORT|off",
        group=_PORTS,
        default="tcp://127.0.0.1:9090",
        about="for resource managers, `off` opens no port (default: tcp://127.0.0.1:9090)",
    ),
    Option(
        name="grpc",
        metavar="HOST:PORT|off",
        group=_PORTS,
        default="127.0.0.1:3333",
        about="for the scheduler interface over gRPC, `off` opens no port (default: 127.0.0.1:3333)",
    ),
    Option(
        name="rest",
        metavar="HOST:PORT|off",
        group=_PORTS,
        default="127.0.0.1:9080",
        about="for REST and metrics, `off` opens no port and keeps no history (default: 127.0.0.1:9080)",
    ),
    Option(name="grpc-tls-cert", metavar="FILE", group=_TLS, about="certificate of the gRPC port (default: no TLS)"),
    Option(name="grpc-tls-key", metavar="FILE", group=_TLS, about="its key"),
    Option(
        name="grpc-tls-client-ca",
        metavar="FILE",
        group=_TLS,
        about="take only gRPC clients with a certificate signed by one of these (default: any client)",
    ),
    Option(name="rest-tls-cert", metavar="FILE", group=_TLS, about="certificate of the REST port (default: no TLS)"),
    Option(name="rest-tls-key", metavar="FILE", group=_TLS, about="its key"),
    Option(
        name="rest-tls-client-ca",
        metavar="FILE",
        group=_TLS,
        about="who signs certificates of people, for --auth certificate",
    ),
    Option(
        name="native-keys",
        metavar="DIR",
        group=_KEYS,
        about="directory of its key, server.key_secret, or that file (default: no keys, anybody may connect)",
    ),
    Option(
        name="native-allowed",
        metavar="FILE",
        group=_KEYS,
        about="which keys may speak for which resource managers, watched for changes (default: allowed beside the key)",
    ),
    Option(
        name="insecure",
        metavar=YES_NO,
        group=_WHO,
        default="false",
        about="open ports that are not secured on other than loopback addresses, too",
    ),
    Option(
        name="allowed-rms",
        metavar="IDS",
        group=_WHO,
        default="*",
        about="ids of the resource managers that may register, with commas between, * for any text (default: *)",
    ),
    Option(
        name="scheduler-admins",
        metavar="ACL",
        group=_WHO,
        about="who may change settings, configurations and applications, as 'user,user group,group', "
        "besides the user who runs this (default: nobody)",
    ),
    Option(
        name="auth",
        metavar="WAYS",
        group=_ASKS,
        default="off",
        about="how people have to say who they are: token, certificate, proxy, with commas between (default: off)",
    ),
    Option(
        name="auth-keys",
        metavar="FILE",
        group=_ASKS,
        about="keys of tokens: a JWKS, or the secret that `yunishard token` makes; watched for changes",
    ),
    Option(name="auth-issuer", metavar="TEXT", group=_ASKS, about="take only tokens with this `iss` (default: any)"),
    Option(
        name="auth-audience",
        metavar="TEXT",
        group=_ASKS,
        about="take only tokens that have this in `aud` (default: only those without)",
    ),
    Option(
        name="auth-proxy",
        metavar="ADDRESSES",
        group=_ASKS,
        about="addresses or networks of proxies whose X-Forwarded-User is believed, with commas between",
    ),
    Option(
        name="cors",
        metavar="ORIGINS",
        group=_ASKS,
        about="sites whose pages may use the API, as in https://ui.example, with commas between "
        "(default: all may read without --auth, else none)",
    ),
    Option(
        name="rest-hosts",
        metavar="NAMES",
        group=_ASKS,
        about="host names by which clients reach the REST port, with commas between, * for any; without --auth and "
        "TLS, private answers are given only under these, addresses and localhost (default: the name in --rest)",
    ),
    Option(
        name="preemption-threshold",
        metavar="PERCENT",
        group=_WAITING,
        default="0",
        about="no ask makes others go while less of the cluster is used (default: 0)",
    ),
    Option(
        name="preemption-pause",
        metavar="DURATION",
        group=_WAITING,
        default="15s",
        about="time between two searches of an ask for others that could go, as in 500ms or 1m30s (default: 15s)",
    ),
    Option(
        name="disable-reservation",
        metavar=YES_NO,
        group=_WAITING,
        default="false",
        about="keep no node for an ask that fits none now",
    ),
    Option(
        name="predicates",
        metavar="NAMES",
        group=_PLUGINS,
        about="predicates of installed packages that say on which nodes asks may run, with commas between "
        "(default: only the built-in ones)",
    ),
    Option(
        name="manual",
        metavar=YES_NO,
        group=_MANUAL,
        default="false",
        about="decide nothing by itself: `yunishard schedule` makes so many decisions at a time",
    ),
    Option(
        name="interpreted",
        metavar=YES_NO,
        group=_MANUAL,
        default="false",
        about="run the engine as Python, even where `make compiled` has made a compiled one",
    ),
    Option(
        name="asks-max",
        metavar="N",
        group=_BOUNDS,
        default="2000000",
        about="asks and allocations that a partition keeps, the next one is rejected (default: 2000000)",
    ),
    Option(
        name="partitions-max",
        metavar="N",
        group=_BOUNDS,
        default="500",
        about="partitions of all resource managers together, each is a process (default: 500)",
    ),
    Option(
        name="spare-workers",
        metavar="N",
        group=_LOST,
        default="0",
        about="workers that wait to take over a partition whose own is gone (default: 0)",
    ),
    Option(
        name="heartbeat",
        metavar="DURATION",
        group=_LOST,
        default="1s",
        about="time between two signs of life of whoever has nothing else to say (default: 1s)",
    ),
    Option(
        name="silence",
        metavar="DURATION",
        group=_LOST,
        default="3s",
        about="resource managers that have been silent for so long are away: nothing new is placed (default: 3s)",
    ),
    Option(
        name="pause-timeout",
        metavar="DURATION",
        group=_LOST,
        default="15m",
        about="the partitions of one that has been away for so long end (default: 15m)",
    ),
    Option(
        name="lease-timeout",
        metavar="DURATION",
        group=_LOST,
        default="10s",
        about="a worker that has been silent for so long is replaced (default: 10s)",
    ),
    Option(
        name="proxy-memory-max",
        metavar="BYTES",
        group=_LOST,
        default="2GiB",
        about="if what resource managers send takes more memory, all are disconnected and come again (default: 2GiB)",
    ),
    Option(
        name="state",
        metavar="DIR",
        group=_KEPT,
        about="directory for what the system keeps (default: ~/.local/state/yunishard)",
    ),
    Option(
        name="ephemeral",
        metavar=YES_NO,
        group=_KEPT,
        default="false",
        about="keep state in a temporary directory, removed at the end",
    ),
    Option(
        name="journal-max",
        metavar="BYTES",
        group=_KEPT,
        default="1GiB",
        about="room for the journal of each partition, as in 512MiB (default: 1GiB)",
    ),
    Option(
        name="history",
        metavar=YES_NO,
        group=_KEPT,
        default="true",
        about="keep what applications, queues and users had over time (default: true)",
    ),
    Option(
        name="history-max",
        metavar="BYTES",
        group=_KEPT,
        default="1GiB",
        about="room for that, the oldest goes first (default: 1GiB)",
    ),
    Option(
        name="history-age",
        metavar="DURATION",
        group=_KEPT,
        default="720h",
        about="it is forgotten after so long (default: 720h)",
    ),
    Option(
        name="log-level",
        metavar="|".join(LOG_LEVELS),
        group=_KEPT,
        default="info",
        about="how much to log (default: info)",
    ),
    Option(
        name="default-rm",
        metavar="ID",
        group=_PAGES,
        about="resource manager whose partitions have their plain names, and that requests without ?rm= are about "
        "(default: the one that registered first)",
    ),
    Option(
        name="web-root",
        metavar="DIR",
        group=_PAGES,
        about="directory with the files of a web UI, to be served there (default: none)",
    ),
    Option(
        name="debug",
        metavar=YES_NO,
        group=_PAGES,
        default="false",
        about="answer under /debug/stack and /debug/pprof/, too",
    ),
)

OPTIONS: Final[Mapping[str, Option]] = {option.name: option for option in _ALL}
"""By name, in the order in which they are shown."""
