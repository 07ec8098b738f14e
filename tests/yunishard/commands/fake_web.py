"""A web service of a few lines: a real HTTP server that answers what the test wrote down, and keeps what it heard."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class FakeWeb:
    """Answers by method and path with query, such as `GET /ws/v1/settings`; anything else is 404."""

    url: str = ""
    answers: dict[str, tuple[int, bytes, dict[str, str]]] = field(default_factory=dict)
    hangs_up_on: str = ""
    """A request after which it closes the connection."""
    heard: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)

    def says(self, what: str, body: object, *, status: int = 200, tag: str = "") -> None:
        method, _, path = what.partition(" ")
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.answers[f"{method} /ws/v1/{path}"] = (status, data, {"ETag": f'"{tag}"'} if tag else {})

    def says_table(
        self, name: str, rows: list[dict[str, object]], *, partition: str = "default", query: str = "limit=10000"
    ) -> None:
        """Answers with these rows, of which the first has all columns."""
        columns = list(rows[0]) if rows else []
        kinds = {kind for row in rows for value in row.values() if isinstance(value, dict) for kind in value}
        table = {"columns": columns, "rows": [[row.get(one) for one in columns] for row in rows], "total": len(rows)}
        self.says(f"GET partition/{partition}/table/{name}?{query}", {**table, "resources": sorted(kinds)})

    def refuses(self, what: str, status: int, message: str, **more: object) -> None:
        self.says(what, {"status_code": status, "message": message, "description": message, **more}, status=status)

    @property
    def asked(self) -> list[str]:
        return [what.replace("/ws/v1/", "") for what, _, _ in self.heard]


@contextmanager
def web() -> Iterator[FakeWeb]:
    """A running one."""
    fake = FakeWeb()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            what = f"{self.command} {self.path}"
            fake.heard.append((what, dict(self.headers), body))
            if what == fake.hangs_up_on:
                self.close_connection = True
                return
            status, data, headers = fake.answers.get(what, (404, b"404 page not found\n", {}))
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(data))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_PUT = do_POST = answer  # noqa: N815 - the names that http.server looks for

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    fake.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
