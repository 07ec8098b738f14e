"""An ASGI application on a real port, as the service runs it."""

import contextlib
from asyncio import get_running_loop
from collections.abc import AsyncIterator

import uvicorn
from starlette.types import ASGIApp
from uvicorn.server import ServerState

from yunishard.webservice.http1 import BoundedHttpProtocol


@contextlib.asynccontextmanager
async def serving(
    app: ASGIApp, protocol: type[BoundedHttpProtocol] = BoundedHttpProtocol
) -> AsyncIterator[tuple[str, int]]:
    """The address while it is served."""
    config = uvicorn.Config(app, http=protocol, lifespan="off", ws="none", log_config=None)
    config.load()
    state = ServerState()
    server = await get_running_loop().create_server(lambda: protocol(config, state, app_state={}), "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        yield host, port
