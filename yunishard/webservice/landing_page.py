"""The page at `/` while no web UI of the setting `web-root` has that address: links to what this port serves.

The page is the same for every caller and every system, so it needs no authentication and reveals nothing. Browsers get
HTML, which loads only its icon; a client that accepts JSON gets the links as JSON, any other one as plain text. Links
are relative, so that they also work below the path prefix of a proxy.
"""

import base64
import hashlib
from collections.abc import Mapping
from html import escape
from typing import Final, NamedTuple

import msgspec

from yunishard.webservice.calls import JSON, Reply
from yunishard.webservice.parameters import entity_tag, is_known

HTML: Final = "text/html; charset=utf-8"
TEXT: Final = "text/plain; charset=utf-8"

ABOUT: Final = "A resource scheduler for clusters, compatible with Apache YuniKorn."


class Link(NamedTuple):
    """One address of this port."""

    name: str
    """Its key in JSON."""
    path: str
    title: str
    about: str


LINKS: Final = (
    Link("dashboard", "ui/", "Dashboard", "queues, applications, nodes and users, live"),
    Link("health", "ws/v1/scheduler/healthcheck", "Health", "the result of every check, and what to do about it"),
    Link("metrics", "ws/v1/metrics", "Metrics", "of all processes, for Prometheus"),
    Link("api", "ws/v1/openapi.json", "REST API", "every route and its answers, as an OpenAPI document"),
    Link("clusters", "ws/v1/clusters", "Partitions", "with their resource managers"),
    Link("live", "ws/v1/livez", "Liveness", "whether this web service answers"),
    Link("ready", "ws/v1/readyz", "Readiness", "whether it reaches the broker"),
)

_STYLE: Final = """
:root { color-scheme: light dark; --back: #fff; --text: #1b2430; --quiet: #55606e; --link: #0b5cad; --line: #c9d1db; }
@media (prefers-color-scheme: dark) {
  :root { --back: #12171d; --text: #e6ebf1; --quiet: #a3afbd; --link: #7db8f5; --line: #3a4552; }
}
body { margin: 0; background: var(--back); color: var(--text); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 40rem; margin: 0 auto; padding: 2rem 1rem; }
h1 { font-size: 1.5rem; margin: 0; }
p, dd { color: var(--quiet); }
dl { border-top: 1px solid var(--line); margin: 1.5rem 0; }
dt { margin-top: 1rem; font-weight: 600; }
dd { margin: 0; }
a { color: var(--link); }
a:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
code { font-family: ui-monospace, monospace; color: var(--text); }
"""

_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()

_ITEMS: Final = "\n".join(
    f'<dt><a href="{escape(one.path)}">{escape(one.title)}</a></dt>\n<dd>{escape(one.about)}</dd>' for one in LINKS
)

_PAGE: Final = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>yunishard</title>
<link rel="icon" href="ui/icon.svg">
<style>{_STYLE}</style>
</head>
<body>
<main>
<h1>yunishard</h1>
<p>{escape(ABOUT)}</p>
<dl>
{_ITEMS}
</dl>
<p>On the command line, <code>yunishard status</code> shows the state of the system.</p>
</main>
</body>
</html>
"""

_WIDTH: Final = max(len(one.path) for one in LINKS)

_BODIES: Final[Mapping[str, bytes]] = {
    HTML: _PAGE.encode(),
    JSON: msgspec.json.encode({"name": "yunishard", "about": ABOUT, "links": {one.name: one.path for one in LINKS}})
    + b"\n",
    TEXT: "\n".join(
        [f"yunishard: {ABOUT}", "", *(f"/{one.path:{_WIDTH}}  {one.title}: {one.about}" for one in LINKS), ""]
    ).encode(),
}

_HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; img-src 'self'; base-uri 'none';"
    " form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-cache",
    "Vary": "Accept",
}


def serve_landing_page(headers: Mapping[str, str]) -> Reply:
    """The page in the form that the client accepts; 304 if it has that. Header names are in lower case."""
    kind = _choose_form(headers.get("accept", ""))
    tag = entity_tag(hashlib.sha256(_BODIES[kind]).hexdigest()[:32])
    answer = {**_HEADERS, "ETag": tag}
    if is_known(headers.get("if-none-match"), tag):
        return Reply(b"", 304, kind, answer)
    return Reply(_BODIES[kind], 200, kind, answer)


def _choose_form(accept: str) -> str:
    """The media type of the answer: HTML if the client names it, else JSON if it names that, else plain text.

    >>> _choose_form("text/html,application/xhtml+xml,*/*;q=0.8").partition(";")[0]
    'text/html'
    >>> _choose_form("application/json;q=0.9, text/plain").partition(";")[0]
    'application/json'
    >>> _choose_form("*/*").partition(";")[0]
    'text/plain'
    """
    named = {one.partition(";")[0].strip().lower() for one in accept.split(",")}
    if "text/html" in named:
        return HTML
    return JSON if "application/json" in named else TEXT
