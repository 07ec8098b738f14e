"""Pods whose content is strange or hostile: the shim refuses or ignores it, and serves all others."""

import json
from typing import Any

from tests.kubernetes.controlplane import eventually
from tests.kubernetes.system import Site

Y = "yunikorn.apache.org"
DEEP = "[" * 100_000
LONG = "x" * 200_000
HUGE = {"cpu": "9E", "memory": "9Ei"}


def group(**changes: Any) -> dict[str, str]:
    text = json.dumps([{"name": "g", "minMember": 1, "minResource": {"cpu": "1m"}, **changes}])
    return {f"{Y}/task-groups": text, f"{Y}/task-group-name": "g"}


ANNOTATIONS: list[dict[str, str]] = [
    {f"{Y}/task-groups": DEEP},
    {f"{Y}/user.info": f'{{"user": "a", "more": {DEEP}'},
    {f"{Y}/user.info": '{"user": "\\u0000\\n", "groups": ["", "\\u0001"]}'},
    {f"{Y}/user.info": '{"user": "\\ud800"}'},
    {f"{Y}/user.info": json.dumps({"user": "a", "groups": ["g"] * 20_000})},
    {f"{Y}/app-id": LONG},
    {f"{Y}/app-id": "a b/\n\u00e9"},
    {f"{Y}/queue": f"root{'.x' * 10_000}"},
    {f"{Y}/queue": "..\u0001"},
    {f"{Y}/task-group-name": LONG},
    {f"{Y}/placeholder": "true", f"{Y}/task-group-name": "g"},
    group(name="a/b.."),
    group(minMember=10**18),
    group(minResource={"cpu": "1m", "a b": 1e300}),
    group(affinity={"nodeAffinity": 1}, tolerations=[{"x": [[]]}], labels={"a b": "c"}),
    {f"{Y}/schedulingPolicyParameters": "placeholderTimeoutInSeconds=9999999999999999999 =="},
]


def test_pods_with_strange_content_hinder_no_other(site: Site) -> None:
    site.add_nodes(1)
    pods = [
        site.build(f"strange-{number}", annotations={f"{Y}/app-id": f"strange-{number}", **annotations})
        for number, annotations in enumerate(ANNOTATIONS)
    ]
    containers = [{"name": name, "image": "none", "resources": {"requests": HUGE}} for name in ("a", "b", "c")]
    pods.append(site.build("huge", annotations={f"{Y}/app-id": "huge"}, containers=containers))
    site.plane.create_all("pods", pods)
    plain = site.create("plain", annotations={f"{Y}/app-id": "plain"})
    eventually(lambda: site.plane.place_of(plain))
    assert site.system.shim.process.poll() is None
    site.system.restart_shim()
    later = site.create("later", annotations={f"{Y}/app-id": "later"})
    eventually(lambda: site.plane.place_of(later))
