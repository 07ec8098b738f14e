"""A diagram of the processes of a running system, as SVG for README.md."""

from collections.abc import Sequence
from html import escape
from typing import Final, NamedTuple

WIDTH: Final = 760
HEIGHT: Final = 330
_BOX: Final = (150, 46)
"""Width and height of a box."""


class Box(NamedTuple):
    """A process, or a client of the system, with the middle of its box."""

    title: str
    detail: str
    x: int
    y: int
    is_client: bool = False


def draw(partitions: Sequence[str]) -> str:
    """Draw the processes of a system with these partitions."""
    clients = [
        Box("resource manager", "SDK or protocol", 130, 32, is_client=True),
        Box("resource manager", "gRPC, si.v1", 320, 32, is_client=True),
        Box("users, Prometheus", "HTTP", 570, 32, is_client=True),
    ]
    proxy = Box("rmproxy", "native and gRPC port", 225, 122)
    web = Box("webservice", "REST and dashboard", 570, 122)
    broker = Box("broker", "sessions, configurations", 398, 202)
    supervisor = Box("supervisor", "starts and restarts all", 660, 202)
    step = WIDTH // (len(partitions) + 1)
    workers = [Box("partition_worker", name, step * at, 290) for at, name in enumerate(partitions, 1)]
    links = [(clients[0], proxy), (clients[1], proxy), (clients[2], web), (proxy, broker), (web, broker)]
    links += [(broker, worker) for worker in workers]
    body = [_draw_link(*link) for link in links]
    body += [_draw_box(box) for box in (*clients, proxy, web, broker, supervisor, *workers)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
        ' font-family="sans-serif" text-anchor="middle"><rect width="100%" height="100%" fill="#fff"/>\n'
        + "\n".join(body)
        + "\n</svg>\n"
    )


def _draw_link(above: Box, below: Box) -> str:
    half = _BOX[1] // 2
    line = f'x1="{above.x}" y1="{above.y + half}" x2="{below.x}" y2="{below.y - half}"'
    return f'<line {line} stroke="#667" stroke-width="1.5"/>'


def _draw_box(box: Box) -> str:
    width, height = _BOX
    fill, dash = ("#fff", ' stroke-dasharray="4 3"') if box.is_client else ("#e8f0fe", "")
    return (
        f'<rect x="{box.x - width // 2}" y="{box.y - height // 2}" width="{width}" height="{height}" rx="6"'
        f' fill="{fill}" stroke="#446"{dash}/>'
        f'<text x="{box.x}" y="{box.y - 3}" font-size="14" fill="#123">{escape(box.title)}</text>'
        f'<text x="{box.x}" y="{box.y + 14}" font-size="11" fill="#456">{escape(box.detail)}</text>'
    )
