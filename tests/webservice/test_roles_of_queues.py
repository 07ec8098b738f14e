"""The answers of a real partition to each role, on every route, contain no name or work of other users.

A new route is asked, too: where its rule is `seen` its worker has to cut what the viewer may not see, and where it is
`known` there must be nothing to cut. Not here: what is left of which view (`tests/partition_worker/test_redaction.py`).
"""

from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path

import httpx
import pytest

from tests.builders import apps, asks, foreign, nodes
from tests.trial import Trial
from tests.webservice.fakes import FakeLink, loopback_users, partition, request
from tests.webservice.identities import NOW, jwks, secret_jwk, token
from yunishard.common.config.acl import Acl, parse_acl
from yunishard.common.messages.query_messages import Answer, Query
from yunishard.partition_worker import queries
from yunishard.webservice.api_document import ROUTES
from yunishard.webservice.authn_authz import AccessControl, KeyFile
from yunishard.webservice.router import Access, Route

NAMES = {
    "partition": ("default", "rm-1_default"),
    "queue": ("root", "root.p", "root.p.a", "root.b", "root.q"),
    "application": ("app-p", "app-a", "app-b"),
    "node": ("n1",),
    "state": ("active", "rejected", "completed"),
    "user": ("paula", "adam", "bert"),
    "group": ("of-paula", "of-adam", "of-bert"),
}
"""What is asked for, whoever asks."""

SECRETS = {
    "nora": ("paula", "adam", "bert", "app-p", "app-a", "app-b", "root.p", "root.b", "root.q", "ask-", "rejected-b"),
    "sue": ("paula", "adam", "bert", "app-p", "app-a", "app-b", "root.b", "root.q", "ask-", "rejected-b"),
    "paula": ("adam", "bert", "app-a", "app-b", "root.p.a", "root.q", "ask-a", "ask-b", "rejected-b"),
    "al": ("paula", "bert", "app-p", "app-b", "root.b", "root.q", "ask-p", "ask-b", "rejected-b"),
}
"""What each of them must not read of: nora has no right at all, sue may submit below root.p, paula has an application
in it and no right, al administers root.p.a.
"""


def acl(*users: str) -> Acl:
    return Acl(users=frozenset(users))


@pytest.fixture(scope="module")
def link() -> FakeLink:
    trial = Trial("root.p.a; root.p.c; root.b; root.q limit.user.bert=memory:3")
    trial.does(nodes("n1 memory=50"), foreign("f1 n1 memory=1 foreign=default"))
    trial.does(apps("app-p root.p.c user=paula", "app-a root.p.a user=adam", "app-b root.b user=bert"))
    trial.does(apps("rejected-b root.nosuch user=bert"))
    trial.does(asks("app-p ask-p memory=1", "app-a ask-a memory=2", "app-b ask-b memory=3", "app-b ask-b2 memory=99"))
    for path, submit, admin in (
        ("root", (), ()),
        ("root.p", ("sue",), ()),
        ("root.p.a", (), ("al",)),
        ("root.b", (), ()),
    ):
        queue = trial.partition.tree.find(path)
        assert queue is not None
        queue.submit_acl, queue.admin_acl = acl(*submit), acl(*admin)

    def worker(query: Query) -> Answer:
        return queries.answer_partition_query(trial.partition, "rm-1", query)

    return FakeLink(partition(), worker=worker)


@pytest.fixture(scope="module")
def control(tmp_path_factory: pytest.TempPathFactory) -> AccessControl:
    file: Path = tmp_path_factory.mktemp("keys") / "keys"
    file.write_bytes(jwks(secret_jwk()))
    file.chmod(0o600)
    return AccessControl(loopback_users(), keys=KeyFile(file), admins=parse_acl("root"), clock=lambda: NOW)


@cache
def read(link: FakeLink, control: AccessControl | None, path: str, user: str) -> httpx.Response:
    """What somebody is answered, who asks once."""
    headers = {"Authorization": f"Bearer {token(sub=user, groups=[])}"}
    return request(link, path, headers=headers, control=control)


def paths(route: Route) -> Iterator[str]:
    """The path with everything that there is to ask for."""
    names = [part[1:-1] for part in route.path.split("/") if part.startswith("{")]
    for values in product(*(NAMES.get(name, ("x",)) for name in names)):
        path = route.path
        for name, value in zip(names, values, strict=True):
            path = path.replace(f"{{{name}}}", value)
        yield path
        yield f"{path}?subtree&limit=100"


READ = [route for route in ROUTES if route.method == "GET" and route.access in (Access.KNOWN, Access.SEEN)]


@pytest.mark.parametrize("user", SECRETS)
@pytest.mark.parametrize("route", READ, ids=lambda route: route.path)
def test_callers_see_nothing_of_other_users(route: Route, user: str, link: FakeLink, control: AccessControl) -> None:
    for path in paths(route):
        answer = read(link, control, path, user)
        asked_for = [text for text in path.replace("?", "/").split("/") if text]
        text = answer.text
        if answer.status_code != 200:
            for name in asked_for:  # what somebody asks for they know already
                text = text.replace(name, "")
        assert [secret for secret in SECRETS[user] if secret in text] == [], (path, answer.text)


@pytest.mark.parametrize("route", READ, ids=lambda route: route.path)
def test_a_scheduler_administrator_sees_what_is_visible_without_authentication(
    route: Route, link: FakeLink, control: AccessControl
) -> None:
    for path in paths(route):
        theirs, everybody_s = read(link, control, path, "root"), read(link, None, path, "root")
        assert (theirs.status_code, theirs.content) == (everybody_s.status_code, everybody_s.content)


def test_the_hidden_names_exist_in_the_full_answer(link: FakeLink) -> None:
    """Without it none of the above could fail."""
    text = "".join(read(link, None, path, "").text for route in READ for path in paths(route))
    assert [secret for secret in SECRETS["nora"] if secret not in text] == []


def test_callers_see_their_own_work(link: FakeLink, control: AccessControl) -> None:
    def text(user: str) -> str:
        return "".join(read(link, control, path, user).text for route in READ for path in paths(route))

    assert "root.p.c" in text("sue")
    assert all(own in text("paula") for own in ("app-p", "ask-p", "paula"))
    assert all(own in text("al") for own in ("app-a", "ask-a", "adam"))
