"""Access rules: each role on each route of the table, by the rule in the OpenAPI document.

A route that nobody wrote a rule for cannot be in the table, one that the document does not have fails here, and what a
rule means is written down here once more.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_network
from pathlib import Path

import pytest

from tests.webservice.fakes import CLIENT, QUEUES, FakeLink, loopback_users, partition, request
from tests.webservice.identities import NOW, jwks, secret_jwk, token
from yunishard.common.config.acl import parse_acl
from yunishard.common.messages.query_messages import Actor, ChangeQueue, KillApplication, MoveApplication, Query
from yunishard.common.settings import Settings
from yunishard.webservice.api_document import ROUTES
from yunishard.webservice.authn_authz import AccessControl, KeyFile
from yunishard.webservice.credentials import Identity
from yunishard.webservice.router import Access, Route

ADMINS = "root ops"
PROXY = ("10.1.0.1", 40000)
BODIES = {path: QUEUES.encode() for path in ("/ws/v1/config", "/ws/v1/config/impact")}
QUERIES = {
    "/ws/v1/config/rollback": "?version=3",
    "/move": "?queue=root.a",
    "/events/stream": "?count=0",  # its answer has no end, so it is asked what is wrong; who asks is let in before
}
DEBUG = Settings(debug=True)


@dataclass(frozen=True)
class Role:
    """How somebody comes, and what the rules let them do."""

    headers: Mapping[str, str] = field(default_factory=dict)
    client: tuple[str, int] = CLIENT
    shown: Identity | None = None
    user: str = ""
    """Empty for somebody who is not known."""
    is_admin: bool = False
    read_only: bool = False

    def status(self, route: Route, access: str) -> int:
        """What they are refused with; 0 if they are let in."""
        if access == "anybody":
            return 0
        if not self.user:
            return 401
        if access == "admins" and not self.is_admin:
            return 403
        return 403 if route.changes and self.read_only else 0


def bearer(**claims: object) -> dict[str, str]:
    return {"Authorization": f"Bearer {token(**claims)}"}


ROLES = {
    "nobody": Role(),
    "nobody, in words of the loopback": Role(headers={"X-User": "root"}),
    "wrong token": Role(headers={"Authorization": f"Bearer {token()[:-4]}AAAA"}),
    "no token at all": Role(headers={"Authorization": "Bearer "}),
    "another kind of password": Role(headers={"Authorization": "Basic cm9vdDpyb290"}),
    "expired token": Role(headers=bearer(sub="root", exp=NOW - 31)),
    "submit user": Role(headers=bearer(sub="alice", groups=["dev"]), user="alice"),
    "queue administrator": Role(headers=bearer(sub="bob", groups=["queue-admins"]), user="bob"),
    "scheduler administrator": Role(headers=bearer(sub="root", groups=[]), user="root", is_admin=True),
    "scheduler administrator by group": Role(headers=bearer(sub="ann", groups=["ops"]), user="ann", is_admin=True),
    "reading user": Role(headers=bearer(scope="read"), user="alice", read_only=True),
    "reading administrator": Role(headers=bearer(sub="root", scope="read"), user="root", is_admin=True, read_only=True),
    "behind the proxy": Role(headers={"X-Forwarded-User": "alice"}, client=PROXY, user="alice"),
    "administrator behind the proxy": Role(
        headers={"X-Forwarded-User": "eve", "X-Forwarded-Groups": "staff,ops"}, client=PROXY, user="eve", is_admin=True
    ),
    "the proxy itself": Role(client=PROXY),
    "with a certificate": Role(shown=Identity("alice", ("dev",)), user="alice"),
    "administrator with a certificate": Role(shown=Identity("eve", ("ops",)), user="eve", is_admin=True),
    "with a certificate of nobody": Role(shown=None),
}


@pytest.fixture(scope="module")
def control(tmp_path_factory: pytest.TempPathFactory) -> AccessControl:
    return closed(tmp_path_factory.mktemp("keys"))


def closed(folder: Path, *origins: str) -> AccessControl:
    """Access control with every method of authentication."""
    file = folder / "keys"
    file.write_bytes(jwks(secret_jwk()))
    file.chmod(0o600)
    return AccessControl(
        loopback_users(),
        keys=KeyFile(file),
        certificates=True,
        proxies=(ip_network("10.1.0.0/16"),),
        admins=parse_acl(ADMINS),
        origins=origins,
        clock=lambda: NOW,
    )


def path_of(route: Route) -> str:
    """A path that the route takes, with what it needs."""
    names = {"partition": "default", "queue": "root.a", "application": "app-1", "node": "n1", "state": "active"}
    names |= {"user": "alice", "group": "dev", "number": "3", "profile": "heap"}
    path = route.path
    for name in [part[1:-1] for part in path.split("/") if part.startswith("{")]:
        path = path.replace(f"{{{name}}}", names.get(name, "x"))
    return path + next((query for end, query in QUERIES.items() if route.path.endswith(end)), "")


def link_for(route: Route) -> FakeLink:
    """One with a partition, but for the state dump: that looks closely at what workers answer."""
    return FakeLink() if route.path.startswith("/debug/") else FakeLink(partition())


def named(route: Route) -> str:
    return f"{route.method} {route.path}"


def rules() -> dict[str, str]:
    """The rule of each operation, as the document has it."""
    document = json.loads(request(FakeLink(), "/ws/v1/openapi.json").content)
    return {
        f"{method.upper()} {path}": operation["x-yunishard-access"]
        for path, item in document["paths"].items()
        for method, operation in item.items()
        if method in ("get", "put", "post", "delete", "patch")
    }


def test_the_document_has_the_rule_of_every_route_and_no_other() -> None:
    assert rules() == {named(route): route.access.value for route in ROUTES}


def test_only_harmless_routes_are_for_unauthenticated_callers() -> None:
    told = {
        "/ws/v1/openapi.json",
        "/ws/v1/catalogue",
        "/ws/v1/stack",
        "/ws/v1/fullstatedump",
    }  # the last two only say where to look
    probes = {"/ws/v1/livez", "/ws/v1/readyz"}
    assert {route.path for route in ROUTES if route.access is Access.ANYBODY} == told | probes


def test_every_change_is_for_administrators_or_decided_by_the_worker() -> None:
    for route in ROUTES:
        only_examines = route.path in (
            "/ws/v1/validate-conf",
            "/ws/v1/config/impact",
            "/ws/v1/partition/{partition}/plan",
        )
        assert route.changes == (route.access is Access.OWN or route.method != "GET") or only_examines, named(route)
        if route.changes:
            assert route.access in (Access.OWN, Access.ADMINS), named(route)


@pytest.mark.parametrize("route", ROUTES, ids=named)
def test_every_role_may_use_exactly_the_routes_of_its_rule(route: Route, control: AccessControl) -> None:
    rule = rules_of_all()[named(route)]
    for role, who in ROLES.items():
        link, expected = link_for(route), who.status(route, rule)
        answer = request(
            link,
            path_of(route),
            route.method,
            headers=dict(who.headers),
            body=BODIES.get(route.path, b""),
            client=who.client,
            control=control,
            shown=who.shown,
            settings=DEBUG,
        )
        if expected:
            assert answer.status_code == expected, (role, answer.text)
            assert answer.json()["status_code"] == expected, role
            assert (link.asked, link.changes, link.read_of) == ([], [], []), role
            assert answer.headers.get("www-authenticate") == ("Bearer" if expected == 401 else None), role
        else:
            assert answer.status_code not in (401, 403), (role, answer.text)
        assert "access-control-allow-origin" not in answer.headers, role
        assert route.access is Access.ANYBODY or answer.headers["cache-control"].startswith("private, no-"), role


@pytest.mark.parametrize("route", [one for one in ROUTES if one.access in (Access.SEEN, Access.OWN)], ids=named)
def test_workers_receive_the_viewer(route: Route, control: AccessControl) -> None:
    for who in ROLES.values():
        if not who.user or who.status(route, route.access.value):
            continue
        link = FakeLink(partition())
        request(
            link,
            path_of(route),
            route.method,
            headers=dict(who.headers),
            client=who.client,
            control=control,
            shown=who.shown,
        )
        viewers = [query.viewer for _, query in link.asked if isinstance(query, Query)]
        changes = [one for _, one in link.changes if isinstance(one, KillApplication | MoveApplication | ChangeQueue)]
        actors = [one.actor for one in changes]
        assert all(one.seen_only is not who.is_admin for one in changes)
        assert [viewer and viewer.user for viewer in viewers] == [None if who.is_admin else who.user] * len(viewers)
        assert [(actor.user, actor.scheduler_admin) for actor in actors] == [(who.user, who.is_admin)] * len(actors)


@pytest.mark.parametrize("route", ROUTES, ids=named)
def test_without_authentication_every_caller_sees_everything(route: Route) -> None:
    if route.changes:
        return
    link = link_for(route)
    answer = request(link, path_of(route), route.method, client=("192.0.2.7", 1), settings=DEBUG)
    assert answer.status_code not in (401, 403)
    assert all(query.viewer is None for _, query in link.asked)


@pytest.mark.parametrize("header", ["X-Forwarded-User", "X-Forwarded-Groups"])
@pytest.mark.parametrize("role", ["nobody", "scheduler administrator", "with a certificate"])
def test_only_a_trusted_proxy_may_name_a_user(header: str, role: str, control: AccessControl) -> None:
    who = ROLES[role]
    headers = {**who.headers, header: "root"}
    answer = request(FakeLink(partition()), "/ws/v1/clusters", headers=headers, control=control, shown=who.shown)
    assert answer.status_code == 403
    assert "is no proxy that may send X-Forwarded-User" in answer.text


def test_a_token_goes_before_a_certificate_and_that_before_a_proxy(control: AccessControl) -> None:
    def seen(headers: dict[str, str], shown: Identity | None) -> Actor | None:
        link = FakeLink(partition())
        path = "/ws/v1/partition/default/queues"
        request(link, path, headers=headers, client=PROXY, control=control, shown=shown)
        return link.asked[0][1].viewer

    forwarded, certificate = {"X-Forwarded-User": "carol"}, Identity("bob", ("units",))
    assert seen({**bearer(), **forwarded}, certificate) == Actor(user="alice", groups=["dev"])
    assert seen(forwarded, certificate) == Actor(user="bob", groups=["units"])
    assert seen(forwarded, None) == Actor(user="carol")


def test_an_invalid_token_is_refused_despite_another_method(control: AccessControl) -> None:
    headers = {"Authorization": "Bearer wrong"}
    answer = request(FakeLink(partition()), "/ws/v1/clusters", headers=headers, control=control, shown=Identity("bob"))
    assert answer.status_code == 401
    assert "The token is invalid: it is no token (JWT). Authenticate by a token" in answer.text


def test_an_unauthenticated_caller_gets_all_methods(control: AccessControl) -> None:
    text = request(FakeLink(), "/ws/v1/clusters", control=control).json()["message"]
    assert text == (
        "The caller is not authenticated. Authenticate by a token (`yunishard token` makes one) in the header"
        " `Authorization: Bearer TOKEN`, or a client certificate, or the proxy in front of this port, where you log in"
    )


_RULES: dict[str, str] = {}


def rules_of_all() -> dict[str, str]:
    """Credentials for once."""
    if not _RULES:
        _RULES.update(rules())
    return _RULES


# Pages of other sites -------------------------------------------------------------------------------------------------

UI = "https://ui.example"
KILL = "/ws/v1/partition/default/application/app-1/kill"


@pytest.mark.parametrize(
    ("origin", "more", "status"),
    [
        (None, {}, 200),
        ("http://127.0.0.1:9080", {}, 200),
        (UI, {"Sec-Fetch-Site": "cross-site"}, 200),
        ("https://evil.example", {}, 403),
        ("null", {}, 403),
        (None, {"Sec-Fetch-Site": "cross-site"}, 403),
        (None, {"Sec-Fetch-Site": "same-site"}, 403),
    ],
)
@pytest.mark.parametrize("role", ["with a certificate", "behind the proxy", "submit user"])
def test_what_browsers_send_by_themselves_counts_for_our_pages_only(
    role: str, origin: str | None, more: dict[str, str], status: int, tmp_path: Path
) -> None:
    who, link = ROLES[role], FakeLink(partition())
    headers = {**who.headers, **more, **({"Origin": origin} if origin else {})}
    control = closed(tmp_path, UI)
    answer = request(link, KILL, "POST", headers=headers, client=who.client, control=control, shown=who.shown)
    assert answer.status_code == (200 if role == "submit user" else status)
    assert bool(link.changes) == (answer.status_code == 200)


def test_behind_a_proxy_our_own_page_is_the_one_that_the_browser_sees(control: AccessControl) -> None:
    def status(client: tuple[str, int], shown: Identity | None, user: dict[str, str]) -> int:
        there = {"X-Forwarded-Host": "yunikorn.example", "X-Forwarded-Proto": "https"}
        headers = {"Origin": "https://yunikorn.example", **there, **user}
        link = FakeLink(partition())
        return request(link, KILL, "POST", headers=headers, client=client, control=control, shown=shown).status_code

    assert status(PROXY, None, {"X-Forwarded-User": "alice"}) == 200
    assert status(CLIENT, Identity("alice"), {}) == 403
