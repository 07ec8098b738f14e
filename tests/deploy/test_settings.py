"""The settings of `yunishard up` from their sources, and checks of settings that depend on each other."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.system import FREE_PORTS, up
from yunishard.cli.commands.rest import TOKEN_FILE
from yunishard.common.settings import SETTINGS, Settings, SettingsError, TlsPaths
from yunishard.deploy.settings import _KNOWN, find_unknown_variables, resolve_settings
from yunishard.sdk.client import KEYS_VARIABLE

HOME = {"XDG_STATE_HOME": "/xdg"}


def test_without_anything_the_documented_defaults_hold() -> None:
    settings = resolve_settings({}, HOME)
    assert settings.native == "tcp://127.0.0.1:9090"
    assert settings.grpc == "127.0.0.1:3333"
    assert settings.rest == "127.0.0.1:9080"
    assert settings.config is None
    assert settings.state == Path("/xdg/yunishard")
    assert settings.log_level == "info"
    assert (settings.grpc_tls, settings.rest_tls) == (None, None)
    assert (settings.allowed_rms, settings.scheduler_admins, settings.same_hierarchy) == (("*",), "", "warn")
    assert (settings.preemption_threshold_percent, settings.preemption_pause_s) == (0, 15.0)
    assert (settings.reservation_share_percent, settings.reservation_timeout_s) == (25, 7200.0)
    assert not settings.manual
    assert not settings.interpreted
    assert settings.predicates == ()
    assert not settings.insecure
    assert (settings.spare_workers, settings.journal_max_bytes) == (0, 1024**3)
    assert (settings.heartbeat_s, settings.silence_s, settings.lease_timeout_s) == (1.0, 3.0, 10.0)
    assert settings.pause_timeout_s == 900.0
    assert (settings.asks_max, settings.partitions_max) == (2_000_000, 500)


def test_every_setting_can_be_given_in_each_way(tmp_path: Path) -> None:
    values = {
        "same_hierarchy": ("queues.same-hierarchy", "off", "off"),
        "allowed_rms": ("allowed-rms", "rm-1, test-*", ("rm-1", "test-*")),
        "scheduler_admins": ("scheduler-admins", "ann,bob ops", "ann,bob ops"),
        "preemption_threshold_percent": ("preemption-threshold", "80%", 80),
        "preemption_pause_s": ("preemption-pause", "1m30s", 90.0),
        "reservation_share_percent": ("reservation-share", "40%", 40),
        "reservation_timeout_s": ("reservation-timeout", "30m", 1800.0),
        "predicates": ("predicates", "licences, racks", ("licences", "racks")),
        "manual": ("manual", "yes", True),
        "interpreted": ("interpreted", "yes", True),
        "insecure": ("insecure", "yes", True),
        "asks_max": ("asks-max", "1000", 1000),
        "partitions_max": ("partitions-max", "20", 20),
        "spare_workers": ("spare-workers", "2", 2),
        "heartbeat_s": ("heartbeat", "500ms", 0.5),
        "silence_s": ("silence", "1s", 1.0),
        "pause_timeout_s": ("pause-timeout", "1h", 3600.0),
        "lease_timeout_s": ("lease-timeout", "1.5s", 1.5),
        "journal_max_bytes": ("journal-max", "64 MB", 64_000_000),
        "journal_history_bytes": ("journal-history", "32 MB", 32_000_000),
        "record_max_bytes": ("record-max", "80 MB", 80_000_000),
    }
    file = tmp_path / "settings.yaml"
    file.write_text("".join(f"{name}: '{text}'\n" for name, text, _ in values.values()))
    ways = (
        resolve_settings({name: text for name, text, _ in values.values()}, HOME),
        resolve_settings({}, {**HOME, **{SETTINGS[name].variable: text for name, text, _ in values.values()}}),
        resolve_settings({}, HOME, str(file)),
    )
    for settings in ways:
        assert {part: getattr(settings, part) for part in values} == {
            part: value for part, (_, _, value) in values.items()
        }


def test_the_same_hierarchy_setting_has_its_short_name_outside_the_file() -> None:
    option = SETTINGS["queues.same-hierarchy"]
    assert (option.flag, option.variable) == ("--same-hierarchy", "YUNISHARD_SAME_HIERARCHY")


def test_tls_files_go_together(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("grpc-tls-cert: c.pem\ngrpc-tls-key: /k.pem\ngrpc-tls-client-ca: ca.pem\n")
    settings = resolve_settings({"rest-tls-cert": "rc", "rest-tls-key": "rk"}, HOME, str(file))
    assert settings.grpc_tls == TlsPaths(tmp_path / "c.pem", Path("/k.pem"), tmp_path / "ca.pem")
    assert settings.rest_tls == TlsPaths(Path("rc"), Path("rk"), None)


def test_what_is_in_force_is_listed_with_its_sources(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("\nconfig: queues.yaml\nstate: here\n")
    resolved = resolve_settings({"ephemeral": "yes"}, {**HOME, "YUNISHARD_REST": "a:1"}, str(file)).effective
    assert [one.name for one in resolved] == list(SETTINGS)
    found = {one.name: (one.value, one.source) for one in resolved}
    assert found["config"] == (str(tmp_path / "queues.yaml"), f"{file}:2")
    assert found["rest"] == ("a:1", "YUNISHARD_REST")
    assert (found["state"], found["ephemeral"]) == (("", "--ephemeral"), ("true", "--ephemeral"))
    assert found["grpc-tls-key"] == ("", "default")


def test_a_relative_xdg_directory_is_ignored() -> None:
    state = resolve_settings({}, {"XDG_STATE_HOME": "here"}).state
    assert state == Path.home() / ".local" / "state" / "yunishard"


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("grpc: file:1\nrest: file:2\nnative: tcp://file:3\nconfig: queues.yaml\n")
    environment = {**HOME, "YUNISHARD_REST": "variable:2", "YUNISHARD_NATIVE": "tcp://variable:3"}
    settings = resolve_settings({"native": "tcp://flag:3"}, environment, str(file))
    assert (settings.native, settings.rest, settings.grpc) == ("tcp://flag:3", "variable:2", "file:1")
    assert settings.config == tmp_path / "queues.yaml"
    assert [settings.origin(option) for option in ("native", "rest", "grpc", "state")] == [
        "--native",
        "YUNISHARD_REST",
        f"grpc in {file}",
        "--state",
    ]


def test_the_settings_file_can_be_named_in_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("log-level: debug\nephemeral: yes\n")
    settings = resolve_settings({}, {"YUNISHARD_SETTINGS": str(file)})
    assert (settings.log_level, settings.state) == ("debug", None)


def test_an_empty_value_counts_as_not_given(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("config:\n")
    settings = resolve_settings({}, {**HOME, "YUNISHARD_CONFIG": ""}, str(file))
    assert settings.config is None


@pytest.mark.parametrize("text", ["", "# nothing yet\n"])
def test_an_empty_settings_file_says_nothing(tmp_path: Path, text: str) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(text)
    assert resolve_settings({}, HOME, str(file)).log_level == "info"


@pytest.mark.parametrize(
    ("flags", "environment", "state"),
    [
        ({"ephemeral": "true"}, {"YUNISHARD_STATE": "/there"}, None),
        ({"state": "/here"}, {"YUNISHARD_EPHEMERAL": "true"}, Path("/here")),
        ({"state": "/here"}, {"YUNISHARD_EPHEMERAL": "false"}, Path("/here")),
        ({}, {"YUNISHARD_EPHEMERAL": "1"}, None),
    ],
)
def test_of_state_and_ephemeral_the_stronger_source_wins(
    flags: dict[str, str | None], environment: dict[str, str], state: Path | None
) -> None:
    assert resolve_settings(flags, environment).state == state


def test_state_and_ephemeral_from_one_source_exclude_each_other() -> None:
    with pytest.raises(SettingsError, match="--ephemeral and --state exclude each other"):
        resolve_settings({"state": "/here", "ephemeral": "true"}, HOME)


@pytest.mark.parametrize(
    ("flags", "environment", "line"),
    [
        ({"native": "127.0.0.1:1"}, {}, "--native: expected tcp://HOST:PORT or off, got '127.0.0.1:1'"),
        ({"grpc": "3333"}, {}, "--grpc: expected HOST:PORT or off, got '3333'"),
        ({"rest": "::1:80"}, {}, "--rest: expected HOST:PORT or off, got '::1:80'"),
        ({"rest": "*:80"}, {}, "--rest: expected HOST:PORT or off, got '*:80'"),
        ({"rest": "a:65536"}, {}, "--rest: port 65536 is above 65535"),
        ({}, {"YUNISHARD_GRPC": "a b:1"}, "YUNISHARD_GRPC: expected HOST:PORT or off, got 'a b:1'"),
        (
            {},
            {"YUNISHARD_LOG_LEVEL": "loud"},
            "YUNISHARD_LOG_LEVEL: expected one of debug, info, warning, error, got 'loud'",
        ),
        ({}, {"YUNISHARD_EPHEMERAL": "maybe"}, "YUNISHARD_EPHEMERAL: expected true or false, got 'maybe'"),
        (
            {"allowed-rms": "a,,b"},
            {},
            "--allowed-rms: expected ids with commas between, as in 'rm-1,test-*', got 'a,,b'",
        ),
        (
            {"scheduler-admins": "a b c"},
            {},
            "--scheduler-admins: multiple spaces found in ACL: 'a b c'; expected 'user,user group,group'",
        ),
        (
            {"scheduler-admins": "ann, bob"},
            {},
            "--scheduler-admins: a name is missing in 'ann, bob'; expected 'user,user group,group'",
        ),
        (
            {"scheduler-admins": "4ever"},
            {},
            "--scheduler-admins: '4ever' can be no name in '4ever'; expected 'user,user group,group'",
        ),
        (
            {"queues.same-hierarchy": "maybe"},
            {},
            "--same-hierarchy: expected one of off, warn, enforce, got 'maybe'",
        ),
        (
            {"preemption-threshold": "101"},
            {},
            "--preemption-threshold: expected a whole number from 0 to 100, got '101'",
        ),
        (
            {},
            {"YUNISHARD_PREEMPTION_PAUSE": "0s"},
            "YUNISHARD_PREEMPTION_PAUSE: expected a duration such as 500ms, 15s or 1m30s, got '0s'",
        ),
        (
            {"allowed-rms": "rm-1 rm-2"},
            {},
            "--allowed-rms: expected ids with commas between, as in 'rm-1,test-*', got 'rm-1 rm-2'",
        ),
        ({"spare-workers": "-1"}, {}, "--spare-workers: expected a whole number from 0 to 64, got '-1'"),
        ({"spare-workers": "65"}, {}, "--spare-workers: expected a whole number from 0 to 64, got '65'"),
        ({"heartbeat": "10ms"}, {}, "--heartbeat: 10ms is too short, 0.1s is the least"),
        (
            {"silence": "1.9s"},
            {},
            "--silence: 1.9s is too short: with a heartbeat of 1s (--heartbeat) it takes at least 2s",
        ),
        (
            {"heartbeat": "6s", "silence": "20s"},
            {},
            "--lease-timeout: 10s is too short: with a heartbeat of 6s (--heartbeat) it takes at least 12s",
        ),
        (
            {},
            {"YUNISHARD_JOURNAL_MAX": "1GiB and more"},
            "YUNISHARD_JOURNAL_MAX: expected bytes with a unit, such as 512MiB or 1GiB, got '1GiB and more'",
        ),
        ({"journal-max": "1000"}, {}, "--journal-max: expected bytes with a unit, such as 512MiB or 1GiB, got '1000'"),
        ({"journal-max": "1MiB"}, {}, "--journal-max: 1MiB is too little, 16 MiB is the least"),
        ({"rest-tls-key": "k"}, {}, "--rest-tls-key: needs --rest-tls-cert too"),
        ({"grpc-tls-cert": "c"}, {}, "--grpc-tls-cert: needs --grpc-tls-key too"),
        ({"grpc-tls-client-ca": "c"}, {}, "--grpc-tls-client-ca: needs --grpc-tls-cert too"),
        (
            {"native": "off", "grpc": "off"},
            {"YUNISHARD_REST": "off"},
            "--native, --grpc, YUNISHARD_REST: all ports are off, so nothing could reach the system; leave one open",
        ),
        (
            {"native": "off", "native-keys": "k"},
            {},
            "--native-keys: protects nothing while the native port is off (--native); leave one of the two out",
        ),
        ({"state": "~nobody-of-that-name/x"}, {}, "--state: no such user in '~nobody-of-that-name/x'"),
    ],
)
def test_a_bad_value_is_told_with_its_source(
    flags: dict[str, str | None], environment: dict[str, str], line: str
) -> None:
    with pytest.raises(SettingsError) as refusal:
        resolve_settings(flags, {**HOME, **environment})
    assert str(refusal.value) == line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("rest: nowhere\n", "rest in {file}: expected HOST:PORT or off, got 'nowhere'"),
        ("rest: [a, b]\n", "rest in {file}: expected one value, got a list or a map"),
        ("- rest\n", "--settings {file}: expected lines such as `native: tcp://127.0.0.1:9090`"),
        ("rest: a:1\nrest: a:2\n", "rest in {file}: it is there twice, again in line 2"),
        ("logformat: 1\n", "--settings {file}: unknown setting 'logformat'; did you mean 'log-format'?"),
        ("prot: 1\n", "--settings {file}: unknown setting 'prot'; there are " + ", ".join(SETTINGS)),
    ],
)
def test_a_bad_settings_file_is_told_in_one_line(tmp_path: Path, text: str, line: str) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(text)
    with pytest.raises(SettingsError) as refusal:
        resolve_settings({}, HOME, str(file))
    assert str(refusal.value) == line.format(file=file)


@pytest.mark.parametrize("content", [b"rest: {\n", b"\xff\xfe", b"a: b: c\n", b"rest: \0\n", b"rest: &a [*a]\n"])
def test_a_settings_file_that_makes_no_sense_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "settings.yaml"
    file.write_bytes(content)
    with pytest.raises(SettingsError) as refusal:
        resolve_settings({}, HOME, str(file))
    assert str(file) in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_missing_settings_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read: no such file or directory"):
        resolve_settings({}, HOME, str(tmp_path / "none"))


@pytest.mark.parametrize("closed", ["native", "grpc", "rest"])
def test_a_port_can_be_off(closed: str) -> None:
    settings = resolve_settings({closed: "off"}, HOME)
    assert [name for name in ("native", "grpc", "rest") if getattr(settings, name) == "off"] == [closed]
    assert [one.value for one in settings.effective if one.name == closed] == ["off"]


@pytest.mark.parametrize("text", ["[::1]:80", "localhost:65535", "0.0.0.0:1"])
def test_addresses_come_back_as_they_were_written(text: str) -> None:
    settings = resolve_settings({"rest": text}, HOME)
    assert settings.rest == text


@pytest.mark.parametrize("text", ["*", " ops", "ann", "ann,bob ops,staff", "svc$"])
def test_administrators_are_an_access_control_list(text: str) -> None:
    assert resolve_settings({"scheduler-admins": text}, HOME).scheduler_admins == text


@pytest.mark.parametrize("text", ["a b", "a,,b", ",", "-x"])
def test_names_of_plug_ins_have_commas_between(text: str) -> None:
    with pytest.raises(SettingsError, match=r"^--predicates: expected names of plug-ins with commas between, got "):
        resolve_settings({"predicates": text}, HOME)


@pytest.mark.parametrize(
    ("text", "size"),
    [("16777216B", 2**24), ("1TiB", 2**40), ("512MiB", 2**29), ("20000 kB", 20_000_000), ("2GB", 2 * 10**9)],
)
def test_sizes_have_units(text: str, size: int) -> None:
    assert resolve_settings({"journal-max": text}, HOME).journal_max_bytes == size


TLS = {"rest-tls-cert": "c", "rest-tls-key": "k", "rest-tls-client-ca": "ca"}


def web(**flags: str) -> Settings:
    return resolve_settings({name.replace("_", "-"): text for name, text in flags.items()}, HOME)


def reject(**flags: str) -> str:
    with pytest.raises(SettingsError) as refused:
        web(**flags)
    return str(refused.value)


def test_without_anything_nobody_says_who_they_are_and_the_history_is_kept() -> None:
    settings = web()
    assert (settings.auth, settings.auth_keys, settings.auth_proxy, settings.cors) == ((), None, (), ())
    assert (settings.history, settings.history_max_bytes, settings.history_age_s) == (True, 1024**3, 30 * 86400)
    assert (settings.default_rm, settings.web_root, settings.debug) == ("", None, False)


def test_every_setting_can_be_given() -> None:
    settings = web(
        auth="proxy, certificate,token",
        auth_keys="/keys",
        auth_issuer="us",
        auth_audience="yunishard",
        auth_proxy="127.0.0.1, 10.0.0.0/8,::1",
        cors="https://UI.example, http://localhost:8080,https://[::1]",
        rest_hosts="Core.example., yunishard",
        history="no",
        history_max="64MiB",
        history_age="48h",
        default_rm="rm-1",
        web_root="/ui",
        debug="yes",
        **TLS,
    )
    expected = {
        "auth": ("token", "certificate", "proxy"),
        "auth_keys": Path("/keys"),
        "auth_issuer": "us",
        "auth_audience": "yunishard",
        "auth_proxy": ("127.0.0.1", "10.0.0.0/8", "::1"),
        "cors": ("https://ui.example", "http://localhost:8080", "https://[::1]"),
        "rest_hosts": ("core.example", "yunishard"),
        "history": False,
        "history_max_bytes": 64 << 20,
        "history_age_s": 48 * 3600,
        "default_rm": "rm-1",
        "web_root": Path("/ui"),
        "debug": True,
    }
    assert {name: getattr(settings, name) for name in expected} == expected


def test_without_auth_every_page_may_be_allowed() -> None:
    assert web(cors="*").cors == ("*",)


def test_every_name_may_be_one_of_the_rest_port() -> None:
    assert web(rest_hosts="*").rest_hosts == ("*",)
    assert web().rest_hosts == ()


OR_THIS = "--simulated-nodes, or this"
HISTORY_TOO_LONG = (
    "--journal-history: 1GiB is not less than the whole journal, 1GiB (--journal-max), which deletes all of it when it "
    "is full"
)
HISTORY_IN_STORE = (
    "--journal-history: earlier changes are kept in journals in files, and --store has no such journals; leave one of "
    "the two out"
)
BAD_NODE = "--node-resources: vcore: 'none' is not an amount such as 16, 500m or 64Gi (invalid quantity)"


def test_simulated_nodes_keep_no_state() -> None:
    settings = resolve_settings({"simulated-nodes": "3"}, HOME)
    assert (settings.simulated_nodes, settings.node_resources) == (3, "vcore=16,memory=64Gi")
    assert (settings.ephemeral, settings.state) == (True, None)
    stated = {one.name: one.source for one in settings.effective}
    assert stated["ephemeral"] == "--simulated-nodes"
    assert not resolve_settings({"simulated-nodes": "0"}, HOME).ephemeral


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        ({"auth": "password"}, "--auth: expected off, or some of token, certificate, proxy, got 'password'"),
        ({"auth": "off,token"}, "--auth: expected off, or some of token, certificate, proxy, got 'off,token'"),
        ({"auth": "token"}, "--auth: token needs --auth-keys too"),
        ({"auth": "certificate"}, "--auth: certificate needs --rest-tls-client-ca too"),
        ({"auth": "proxy"}, "--auth: proxy needs --auth-proxy too"),
        ({"auth_keys": "k"}, "--auth-keys: needs --auth token too"),
        ({"auth_issuer": "us"}, "--auth-issuer: needs --auth token too"),
        ({"auth_audience": "us"}, "--auth-audience: needs --auth token too"),
        ({"auth_proxy": "::1", "auth": "token", "auth_keys": "k"}, "--auth-proxy: needs --auth proxy too"),
        (TLS, "--rest-tls-client-ca: needs --auth certificate too"),
        (
            {"auth": "proxy", "auth_proxy": "localhost"},
            "--auth-proxy: expected addresses or networks, as in 127.0.0.1,10.1.0.0/16, got 'localhost'",
        ),
        (
            {"auth": "proxy", "auth_proxy": "10.0.0.1/8"},
            "--auth-proxy: expected addresses or networks, as in 127.0.0.1,10.1.0.0/16, got '10.0.0.1/8'",
        ),
        (
            {"cors": "ui.example"},
            "--cors: expected origins such as https://ui.example:8443, or *, got 'ui.example'",
        ),
        ({"cors": "https://a,*"}, "--cors: expected origins such as https://ui.example:8443, or *, got 'https://a,*'"),
        (
            {"cors": "https://a/"},
            "--cors: expected origins such as https://ui.example:8443, or *, got 'https://a/'",
        ),
        (
            {"cors": "*", "auth": "proxy", "auth_proxy": "::1"},
            "--cors: * would let every page use what --auth protects; name the sites instead, as in https://ui.example",
        ),
        (
            {"rest_hosts": "core.example:9080"},
            "--rest-hosts: expected host names without a port such as core.example, or *, got 'core.example:9080'",
        ),
        (
            {"rest_hosts": "*,a"},
            "--rest-hosts: expected host names without a port such as core.example, or *, got '*,a'",
        ),
        ({"history_max": "1MiB"}, "--history-max: 1MiB is too little, 16 MiB is the least"),
        ({"history_age": "59m"}, "--history-age: 59m is too short, 1h is the least"),
        ({"default_rm": "rm 1"}, "--default-rm: expected the id of a resource manager, such as rm-1, got 'rm 1'"),
        (
            {"default_rm": "rm-1", "allowed_rms": "test-*"},
            "--default-rm: 'rm-1' may not register: --allowed-rms does not name it",
        ),
        ({"history": "maybe"}, "--history: expected true or false, got 'maybe'"),
        ({"simulated_nodes": "10001"}, "--simulated-nodes: expected a whole number from 0 to 10000, got '10001'"),
        ({"node_resources": "vcore=4"}, "--node-resources: needs --simulated-nodes too"),
        ({"simulated_load": "50"}, "--simulated-load: needs --simulated-nodes too"),
        ({"simulated_nodes": "3", "node_resources": "vcore=none"}, BAD_NODE),
        (
            {"journal_history": "1GiB"},
            HISTORY_TOO_LONG,
        ),
        (
            {"journal_history": "1MiB", "store": "postgresql://db/y"},
            HISTORY_IN_STORE,
        ),
        (
            {"simulated_nodes": "3", "state": "/s"},
            "--simulated-nodes: they end with the system, so leave out --state, or add --ephemeral",
        ),
        (
            {"simulated_nodes": "3", "native": "off"},
            "--native: the built-in RM 'simulated' of the simulated nodes needs this port; leave out " + OR_THIS,
        ),
        (
            {"simulated_nodes": "3", "allowed_rms": "rm-1"},
            "--allowed-rms: the built-in RM 'simulated' of the simulated nodes must be allowed, too; leave out "
            + OR_THIS,
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(flags: dict[str, str], line: str) -> None:
    assert reject(**flags) == line


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("YUNISHARD_LOGLEVEL", "did you mean YUNISHARD_LOG_LEVEL?"),
        ("YUNISHARD_QUEUES_SAME_HIERARCHY", "did you mean YUNISHARD_SAME_HIERARCHY?"),
        ("YUNISHARD_GRPC_TLS_KEYS", "did you mean YUNISHARD_GRPC_TLS_KEY?"),
        ("YUNISHARD_COLOUR", "`yunishard up --help` lists the settings"),
    ],
)
def test_an_unknown_variable_is_named_with_the_nearest_known_one(name: str, advice: str) -> None:
    assert find_unknown_variables([name, "HOME", *_KNOWN]) == [
        f"{name} in the environment is unknown and ignored; {advice}"
    ]


def test_all_variables_of_clients_are_known() -> None:
    assert {KEYS_VARIABLE, TOKEN_FILE} <= set(_KNOWN)


@pytest.mark.processes
def test_a_command_warns_and_runs(tmp_path: Path) -> None:
    words = [sys.executable, "-P", "-c", "from yunishard.cli.main import main; raise SystemExit(main())", "settings"]
    done = subprocess.run(
        words,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "YUNISHARD_LOGLEVEL": "debug"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == (
        "yunishard settings: YUNISHARD_LOGLEVEL in the environment is unknown and ignored; "
        "did you mean YUNISHARD_LOG_LEVEL?\n"
    )
    assert "log-level" in done.stdout


@pytest.mark.processes
def test_the_system_warns_and_starts(tmp_path: Path) -> None:
    prefix = ("env", "YUNISHARD_LOGLEVEL=debug")
    with up("--ephemeral", *FREE_PORTS, folder=tmp_path, module="tests.deploy.fake_up", prefix=prefix) as system:
        (tmp_path / "wanted.json").write_text('{"partitions": []}')
        system.announced()
        assert system.says("WARNING supervisor core.supervisor: YUNISHARD_LOGLEVEL in the environment is unknown and ")
        assert system.stop() == 0
