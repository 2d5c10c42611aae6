"""Pagella under Ray Serve: replicas of one model behind Ray's HTTP ingress.

    from ray import serve
    from pagella.serve.ray import app

    serve.run(app("demo", replicas=2))

Each replica owns a server of Pagella (`pagella serve`), so every route, parameter and error is that
server's. The ingress passes requests on, to the replica whose cache has their beginning, and bytes back; a
client that leaves cancels its job. A request with `x-pagella-route: any` goes anywhere; the answer says in
`x-pagella-replica` where it was. `docs/scale-out.md` is the guide.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
from collections.abc import AsyncIterator, Sequence
from typing import Any

try:
    import aiohttp
    from ray import serve
except ImportError as missing:
    raise ImportError("pagella.serve.ray needs Ray: pip install 'ray[serve]'") from missing

from ray.exceptions import RayActorError, RayTaskError
from ray.serve.config import (
    AutoscalingConfig,
    AutoscalingContext,
    AutoscalingPolicy,
    RequestRouterConfig,
)
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from pagella.serve._prefix import keys_of
from pagella.serve._server import Server

__all__ = ["app", "build", "wanted_replicas"]

#: Seconds until a model must be loaded.
_LOAD_S = 1800.0
#: How often a request that has not begun to answer is given to another replica.
_ATTEMPTS = 8
#: Seconds before another attempt, doubled for every one.
_PAUSE_S = 0.05
#: Headers that belong to one connection.
_HOP = {
    "connection",
    "content-length",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
}
#: What changes the state of one server: among several, an operator says it to all of them.
_OF_ONE = (
    "/v1/model/",
    "/v1/lora/",
    "/v1/template/",
    "/v1/sampling/",
    "/v1/cache/",
    "/v1/download",
    "/v1/load_lora_adapter",
    "/v1/unload_lora_adapter",
    "/v1/config",
    "/api/pull",
    "/api/delete",
)
_READING = ("GET", "HEAD", "OPTIONS")
#: What only a server's own machine may ask.
_INSIDE = ("/metrics", "/slots")

Head = tuple[int, list[tuple[str, str]], str]


class Replica:
    """One server of a model, on the machine where Ray has placed it."""

    def __init__(self, model: str, flags: Sequence[str] = (), gather_s: float = 0.0) -> None:
        self._gather_s = gather_s
        self._server = Server(model, flags)
        self._server.wait_ready(_LOAD_S)
        self._name = serve.get_replica_context().replica_id.unique_id
        self._client: aiohttp.ClientSession | None = None

    async def check_health(self) -> None:
        """Raises unless the engine's thread answers; Ray then starts another replica."""
        said = await asyncio.to_thread(self._server.health)
        if said not in ("healthy", "draining"):
            raise RuntimeError(f"the server of this replica is {said}")

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """What `wanted_replicas` decides by."""
        numbers = await asyncio.to_thread(self._server.numbers)
        return load_of(numbers)

    async def describe(self, keys: list[bytes]) -> dict[str, Any]:
        """What there is to know of one replica, for operators: that which has these keys, or any."""
        numbers = await asyncio.to_thread(self._server.numbers)
        return {
            "name": self._name,
            "pid": os.getpid(),
            "server_pid": self._server.pid,
            "numbers": numbers,
        }

    async def answer(
        self, keys: list[bytes], method: str, path: str, headers: list[tuple[str, str]], body: bytes
    ) -> AsyncIterator[Head | bytes]:
        """Asks the server: first status, headers and the replica's name, then the body as it comes. `keys`
        are for the router."""
        if self._client is None:
            # Time is limited by the server, and by clients.
            self._client = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=None),
                connector=aiohttp.TCPConnector(limit=0),
                auto_decompress=False,
            )
        url = self._server.base + path
        async with self._client.request(
            method, url, headers=headers, data=body, allow_redirects=False
        ) as answer:
            passed = [(name, value) for name, value in answer.headers.items() if name.lower() not in _HOP]
            yield answer.status, passed, self._name
            async for piece in answer.content.iter_any():
                yield piece
                if self._gather_s:
                    # What comes meanwhile is one piece.
                    await asyncio.sleep(self._gather_s)

    def __del__(self) -> None:
        if hasattr(self, "_server"):
            self._server.close()


class Ingress:
    """Passes requests on to replicas and their answers back."""

    def __init__(self, replicas: Any) -> None:
        self._replicas = replicas.options(stream=True)

    async def __call__(self, request: Request) -> Response:
        """One request."""
        path = request.url.path
        if path in _INSIDE:
            return _error(501, f"{path} is a matter of each replica: Replica.describe has its numbers")
        if request.method not in _READING and path.startswith(_OF_ONE):
            return _error(501, f"{path} would change one of several servers: say it when deploying")
        body = await request.body()
        query = request.url.query
        headers = [(name, value) for name, value in request.headers.items() if name not in _HOP]
        identity = request.headers.get("authorization") or request.headers.get("x-api-key") or ""
        anywhere = request.headers.get("x-pagella-route") == "any"
        keys = [] if anywhere else keys_of(body, identity)
        asked = (request.method, f"{path}?{query}" if query else path, headers, body)
        for attempt in range(1, _ATTEMPTS + 1):
            answer = self._replicas.answer.remote(keys, *asked)
            try:
                head = await anext(answer)
                # A replica that dies between head and body is one that has not answered.
                first = await anext(answer, b"")
                break
            except (RayActorError, RayTaskError) as problem:
                if attempt == _ATTEMPTS:
                    return _error(503, f"no replica answered: {type(problem).__name__}")
                # Whoever has the beginning may be the one that is gone.
                keys = []
                await asyncio.sleep(_PAUSE_S * 2**attempt)
        status, passed, name = head
        response = StreamingResponse(_rest(first, answer, passed), status_code=status)
        response.raw_headers = [(k.lower().encode(), v.encode()) for k, v in passed]
        response.raw_headers.append((b"x-pagella-replica", name.encode()))
        return response


async def _rest(first: bytes, answer: Any, headers: list[tuple[str, str]]) -> AsyncIterator[bytes]:
    """The body; whoever stops reading it cancels the job."""
    is_events = any(name.lower() == "content-type" and "event-stream" in v for name, v in headers)
    try:
        yield first
        async for piece in answer:
            yield piece
    except (RayActorError, RayTaskError):
        if not is_events:
            raise
        sentence = "the replica that wrote this answer is gone: ask again"
        error = {"message": sentence, "type": "server_error", "param": None, "code": "replica_lost"}
        yield f"data: {json.dumps({'error': error})}\n\n".encode()
    finally:
        answer.cancel()


def _error(status: int, sentence: str) -> Response:
    kind = {"message": sentence, "type": "server_error", "param": None, "code": None}
    return JSONResponse({"error": kind}, status_code=status)


def load_of(numbers: dict[str, float]) -> dict[str, float]:
    """What a server's metrics say of its load: requests that wait, and the share of pages in use."""
    return {
        "waiting": numbers.get("pagella_num_requests_waiting", 0.0),
        "cache_used": numbers.get("pagella_kv_cache_usage_perc", 0.0),
    }


def wanted_replicas(
    context: AutoscalingContext, waiting: float = 2.0, cache_used: float = 0.8
) -> tuple[float, dict[str, Any]]:
    """How many replicas there should be: as many as bring requests under way, requests that wait in servers
    (`waiting` each) and the pages in use (a share of `cache_used`) to what each should have, whichever asks
    for most."""
    now = context.current_num_replicas
    if not now:
        return context.target_num_replicas, {}
    config: Any = context.config
    ratios = [context.total_num_requests / (now * config.get_target_ongoing_requests())]
    metrics = context.aggregated_metrics or {}
    for name, target in (("waiting", waiting), ("cache_used", cache_used)):
        told = metrics.get(name) or {}
        if told:
            ratios.append(sum(told.values()) / (len(told) * target))
    return math.ceil(now * max(ratios)), {}


def app(
    model: str = "demo",
    *,
    replicas: int | tuple[int, int] = 1,
    flags: Sequence[str] = (),
    num_cpus: float = 1,
    num_gpus: float = 0,
    resources: dict[str, float] | None = None,
    requests_max: int = 256,
    target_requests: float = 32,
    ingresses: int = 1,
    ingress_cpus: float = 0.1,
    route: str = "prefix",
    slack: int = 8,
    gather_ms: float = 0,
    health_period_s: float = 10,
    upscale_delay_s: float = 30,
    downscale_delay_s: float = 600,
) -> serve.Application:
    """An application for `serve.run`.

    `model` and `flags` are those of `pagella serve`, on the machine of a replica; with `--keys FILE` in
    `flags`, clients show a key. `replicas` is a number, or the least and the most of them, between which
    load decides. `num_cpus`, `num_gpus` and `resources` are what Ray gives each; a model runs on one device.
    `requests_max` is how many requests a replica takes at once, `target_requests` how many it should have.
    `route` is `prefix`, or `balanced` for Ray's own router; `slack` is how many requests more than the least
    busy replica one may have before its cache counts no more. With `gather_ms`, what a replica writes within
    so many milliseconds is one message of Ray's: fewer messages, which many streams are limited by.
    """
    if num_gpus > 1:
        raise ValueError(f"num_gpus is {num_gpus} and a model runs on one device today: give 1 or less")
    if route not in ("prefix", "balanced"):
        raise ValueError(f"route is {route!r}: choose prefix or balanced")
    options: dict[str, Any] = {
        "max_ongoing_requests": requests_max,
        "health_check_period_s": health_period_s,
        "health_check_timeout_s": 30,
        "ray_actor_options": {
            "num_cpus": num_cpus,
            "num_gpus": num_gpus,
            "resources": resources or {},
        },
    }
    if route == "prefix":
        router: Any = "pagella.serve._router:PrefixRouter"
        options["request_router_config"] = RequestRouterConfig(
            request_router_class=router, request_router_kwargs={"slack": slack}
        )
    if isinstance(replicas, int):
        options["num_replicas"] = replicas
    else:
        least, most = replicas
        policy: Any = AutoscalingPolicy
        options["autoscaling_config"] = AutoscalingConfig(
            min_replicas=least,
            max_replicas=most,
            target_ongoing_requests=target_requests,
            upscale_delay_s=upscale_delay_s,
            downscale_delay_s=downscale_delay_s,
            policy=policy(policy_function="pagella.serve.ray:wanted_replicas"),
        )
    replica = serve.deployment(name="Replica", **options)(Replica).bind(model, list(flags), gather_ms / 1000)
    ingress = serve.deployment(
        name="Ingress",
        num_replicas=ingresses,
        max_ongoing_requests=100_000,
        ray_actor_options={"num_cpus": ingress_cpus},
    )
    return ingress(Ingress).bind(replica)


def build(args: dict[str, Any]) -> serve.Application:
    """The same from the arguments of a configuration file."""
    replicas = args.pop("replicas", 1)
    several = isinstance(replicas, (list, tuple))
    return app(replicas=(replicas[0], replicas[1]) if several else replicas, **args)
