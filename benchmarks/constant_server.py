"""The gateway's framework with nothing behind it: Starlette on uvicorn, answering the same bytes.

python -m benchmarks.constant_server SIZE
"""

from __future__ import annotations

import asyncio
import json
import sys

import uvicorn
import uvloop
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tenure.gateway.server import listen


async def _serve(size: int) -> None:
    body = b'"%b"' % (b"x" * (size - 2))

    async def answer(request: Request) -> Response:
        return Response(body, media_type="application/json")

    app = Starlette(routes=[Route("/v1/runs/{run_id}", answer)])
    listener = listen("127.0.0.1", 0)
    config = uvicorn.Config(
        app, http="httptools", lifespan="off", log_config=None, access_log=False
    )
    print(json.dumps({"address": "http://{}:{}".format(*listener.getsockname())}), flush=True)
    await uvicorn.Server(config).serve([listener])


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as running:
        running.run(_serve(int(sys.argv[1])))
