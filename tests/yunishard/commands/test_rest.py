"""Asking a running system: addresses, failures, and that every failure says what to do next."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.yunishard.commands.fake_web import FakeWeb, web
from yunishard.cli.commands.rest import RequestFailed, Rest
from yunishard.cli.main import NOT_DONE, UNUSABLE, CommandFailed, CommandUnusable


def failure(url: str, ca: str | None = None) -> CommandFailed:
    with pytest.raises(CommandFailed) as failed:
        Rest(url, ca).get("settings")
    assert "\n" not in str(failed.value)
    return failed.value


@pytest.mark.parametrize("url", ["", "127.0.0.1:9080", "ftp://x", "http://", "file:///etc/passwd"])
def test_an_address_is_a_url(url: str) -> None:
    failed = failure(url)
    assert failed.status == UNUSABLE
    assert f"got {url!r}" in str(failed)


def test_where_nobody_answers_the_next_step_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
    failed = failure(url)
    assert failed.status == UNUSABLE
    assert str(failed).startswith(f"{url}: connection refused: is the system running there (`yunishard up`)?")


@contextmanager
def port(answer: bytes) -> Iterator[str]:
    """Somebody who hears the first bytes of one connection, answers and hangs up; the address."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def once() -> None:
            peer, _ = server.accept()
            with peer:
                peer.recv(4096)
                peer.sendall(answer)

        thread = threading.Thread(target=once)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join()


@pytest.mark.parametrize("answer", [b"", b"\x15\x03\x01\x00\x02\x02\x46"])
def test_a_port_that_may_speak_tls_is_told_as_one(answer: bytes) -> None:
    with port(answer) as address:
        assert f"if TLS is spoken there, --rest https://{address} with --ca FILE" in str(failure(f"http://{address}"))


def test_a_port_that_speaks_no_tls_is_told_as_one() -> None:
    with port(b"HTTP/1.1 400 Bad Request\r\n\r\n") as address:
        told = str(failure(f"https://{address}"))
    assert told == f"https://{address}: there is no TLS at this port: is it http://{address}?"


def test_who_answers_something_else_than_http_is_not_the_system() -> None:
    with port(b"hello\r\n\r\n") as address:
        assert failure(f"http://{address}").status == UNUSABLE


def test_an_answer_that_is_no_json_is_told() -> None:
    with web() as fake:
        fake.says("GET settings", "<html>")
        answer = Rest(fake.url).get("settings")
    with pytest.raises(CommandUnusable, match="is this the web service"):
        answer.decode(dict[str, object])


def test_a_plain_refusal_is_told_as_it_is() -> None:
    with web() as fake:
        failed = failure(fake.url)
    assert (failed.status, failed.code, str(failed)) == (NOT_DONE, 404, "404 page not found")


def test_a_list_of_authorities_that_cannot_be_read_is_refused() -> None:
    assert str(failure("https://127.0.0.1:1", "/none")) == "--ca /none: cannot be used: no such file or directory"


def test_a_proxy_of_the_environment_is_passed_by(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with web() as fake:
        fake.says("GET settings", [])
        assert Rest(fake.url + "/").get("settings").decode(list[object]) == []


# Several addresses ----------------------------------------------------------------------------------------------------


@contextmanager
def nothing_there() -> Iterator[str]:
    """A URL at which connections are refused."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{reserved.getsockname()[1]}"


def test_the_first_address_that_answers_is_used_from_then_on() -> None:
    with nothing_there() as absent, web() as fake, web() as other:
        for one in (fake, other):
            one.says("GET settings", [])
            one.says("POST config/rollback", {})
        rest = Rest(f"{absent}, {fake.url}/,{other.url}")
        assert rest.get("settings").text == "[]"
        assert rest.url == fake.url
        rest.send("POST", "config", "rollback")
    assert fake.asked == ["GET readyz", "GET settings", "POST config/rollback"]
    assert other.asked == []


def test_a_change_goes_to_the_next_address_if_there_was_no_connection() -> None:
    with nothing_there() as absent, web() as fake:
        fake.says("POST config/rollback", {})
        Rest(f"{absent},{fake.url}").send("POST", "config", "rollback")
        assert fake.asked == ["GET readyz", "POST config/rollback"]


def test_a_change_that_was_sent_is_not_sent_again() -> None:
    with web() as fake, web() as other:
        fake.says("GET readyz", "")
        fake.hangs_up_on = "POST /ws/v1/config/rollback"
        with pytest.raises(CommandUnusable) as failed:
            Rest(f"{fake.url},{other.url}").send("POST", "config", "rollback")
        assert str(failed.value).endswith(": whether anything changed is not known, check before you try again")
        assert str(failed.value).startswith(f"{fake.url}: ")
        assert other.asked == []


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_requests_go_to_an_address_that_is_ready(method: str) -> None:
    with web() as fake, web() as other:
        fake.refuses("GET readyz", 503, "no broker leads")
        other.says("GET readyz", "")
        other.says(f"{method} settings", {})
        rest = Rest(f"{fake.url},{other.url}")
        for _ in range(2):
            rest.send(method, "settings")
        assert fake.asked == ["GET readyz"]
        assert other.asked == ["GET readyz", *[f"{method} settings"] * 2]


def test_requests_are_made_although_no_address_is_ready() -> None:
    with web() as fake, web() as other:
        for one in (fake, other):
            one.refuses("GET readyz", 503, "no broker leads")
        fake.says("GET settings", [])
        assert Rest(f"{fake.url},{other.url}").get("settings").text == "[]"


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_an_address_that_is_not_ready_is_left_for_the_next_one_only_by_queries(method: str) -> None:
    with web() as fake, web() as other:
        fake.says("GET readyz", "")
        fake.refuses(f"{method} settings", 503, "not ready")
        other.says(f"{method} settings", [])
        rest = Rest(f"{fake.url},{other.url}")
        if method == "GET":
            assert rest.get("settings").text == "[]"
            return
        fake.says("GET readyz", "")
        with pytest.raises(RequestFailed, match="not ready"):
            rest.send("POST", "settings")
        assert other.asked == []


def test_a_refusal_is_the_answer_whatever_other_addresses_may_say() -> None:
    with web() as fake, web() as other:
        other.says("GET settings", [])
        assert str(failure(f"{fake.url},{other.url}")) == "404 page not found"
        assert other.asked == []
        fake.refuses("GET settings", 503, "Partition default did not answer")
        with nothing_there() as absent:
            assert str(failure(f"{absent},{fake.url}")) == "Partition default did not answer"


def test_the_failure_names_all_addresses_and_the_next_step_once() -> None:
    with nothing_there() as a, nothing_there() as b:
        assert str(failure(f"{a},{b}")) == (
            f"{a}: connection refused; {b}: connection refused: is the system running there (`yunishard up`)?"
            " If elsewhere, --rest URL"
        )


@pytest.mark.parametrize("urls", ["http://a:1,", "http://a:1,b:2", ","])
def test_each_of_several_addresses_is_a_url(urls: str) -> None:
    assert f"got {urls!r}" in str(failure(urls))


# Tokens ---------------------------------------------------------------------------------------------------------------


def sent(fake: FakeWeb, token_file: str | None = None) -> str | None:
    """The header with which it is asked."""
    Rest(fake.url, token_file=token_file).get("settings")
    return fake.heard[-1][1].get("Authorization")


def test_a_token_is_sent_from_the_file_that_an_option_names_else_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_text("aaa.bbb.ccc\n")
    (tmp_path / "b").write_text("ddd.eee.fff")
    with web() as fake:
        fake.says("GET settings", [])
        assert sent(fake) is None
        assert sent(fake, str(tmp_path / "a")) == "Bearer aaa.bbb.ccc"
        monkeypatch.setenv("YUNISHARD_TOKEN_FILE", str(tmp_path / "b"))
        assert sent(fake) == "Bearer ddd.eee.fff"
        assert sent(fake, str(tmp_path / "a")) == "Bearer aaa.bbb.ccc"


def test_a_redirect_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("aaa.bbb.ccc")
    with web() as fake, web() as other:
        fake.answers["GET /ws/v1/settings"] = (301, b"", {"Location": f"{other.url}/ws/v1/settings"})
        with pytest.raises(RequestFailed, match=f"it is at {other.url}/ws/v1/settings: name that address with --rest"):
            Rest(fake.url, token_file=str(tmp_path / "token")).get("settings")
        assert fake.heard[0][1]["Authorization"] == "Bearer aaa.bbb.ccc"
        assert other.heard == []


@pytest.mark.parametrize("text", ["", "a b", "a\nb", "\xe9", "x" * 9000])
def test_a_file_without_a_token_is_refused_before_anything_is_asked(tmp_path: Path, text: str) -> None:
    (tmp_path / "token").write_text(text)
    with pytest.raises(CommandUnusable, match="holds no token: `yunishard token USER > "):
        Rest("http://127.0.0.1:9", token_file=str(tmp_path / "token"))
    with pytest.raises(CommandUnusable, match=r"--token-file: .*/none: cannot be read: no such file"):
        Rest("http://127.0.0.1:9", token_file=str(tmp_path / "none"))


def test_who_is_not_known_is_told_how_to_say_so() -> None:
    with web() as fake:
        fake.refuses("GET settings", 401, "It is not known who asks. Say so by a certificate")
        assert str(failure(fake.url)) == (
            "It is not known who asks: authenticate with --token-file FILE or YUNISHARD_TOKEN_FILE"
            " (`yunishard token USER > FILE` makes one)"
        )
