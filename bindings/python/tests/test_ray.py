"""Two replicas of the demo model on two nodes of a Ray cluster on this machine."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ray = pytest.importorskip("ray", reason="Ray is not installed")
openai = pytest.importorskip("openai")

import yaml
from ray import serve
from ray.cluster_utils import Cluster
from ray.serve.schema import ServeDeploySchema

from pagella.serve._prefix import keys_of, order
from pagella.serve.ray import app, build, wanted_replicas

#: Longest wait for anything; machines that run tests are slow.
PATIENCE_S = 240.0
HEAD = "127.0.0.2"


def eventually(what: Callable[[], Any], why: str) -> Any:
    """The first true value of something."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := what()):
        assert time.monotonic() < deadline, why
        time.sleep(0.1)
    return found


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def insist(action: Callable[..., object], **arguments: Any) -> None:
    """Does something that Ray gives up after half a minute or one, which a busy machine may need."""
    for attempt in range(5):
        try:
            action(**arguments)
            return
        except Exception:
            if attempt == 4:
                raise


@pytest.fixture(scope="module")
def cluster() -> Iterator[SimpleNamespace]:
    # Sockets live there, whose names are short.
    folder = tempfile.mkdtemp(prefix="pagella-ray-", dir="/tmp")
    os.environ["RAY_TMPDIR"] = folder
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    # What is slow is not dead.
    os.environ["RAY_health_check_timeout_ms"] = str(int(PATIENCE_S * 1000))
    os.environ["RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S"] = str(PATIENCE_S)
    os.environ["RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S"] = str(PATIENCE_S)
    # As many processes as processors are started in advance.
    node = {"num_cpus": 1, "resources": {"replica": 1}, "object_store_memory": 100 << 20}
    nodes = Cluster()
    try:
        # Both are this machine alone; Ray takes 127.0.0.1 for a name of an address that others see.
        insist(nodes.add_node, **node, node_ip_address=HEAD, include_dashboard=False)
        insist(nodes.add_node, **node, node_ip_address="127.0.0.3")
        nodes.wait_for_nodes(timeout=PATIENCE_S)
        ray.init(address=nodes.address, _node_ip_address=HEAD, log_to_driver=False, logging_level="ERROR")
        port = free_port()
        http = {"host": "127.0.0.1", "port": port, "location": "HeadOnly"}
        insist(serve.start, http_options=http, logging_config={"log_level": "ERROR"})
        served = app("demo", replicas=(2, 2), num_cpus=0, resources={"replica": 1}, health_period_s=5)
        serve.run(served, name="pagella", route_prefix="/")
        handle = serve.get_deployment_handle("Replica", "pagella")
        client = openai.OpenAI(
            base_url=f"http://127.0.0.1:{port}/v1", api_key="none", timeout=PATIENCE_S, max_retries=0
        )
        yield SimpleNamespace(client=client, handle=handle)
    finally:
        serve.shutdown()
        ray.shutdown()
        nodes.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


def text(name: str) -> str:
    """Long enough for several chunks, and another for every name."""
    return f"{name} lived by the sea. " + f"Every morning {name} went to look at the ships. " * 24


def ask(client: Any, messages: list[Any], **more: Any) -> Any:
    settings = {"model": "demo", "max_tokens": 2, "temperature": 0, **more}
    return client.chat.completions.with_raw_response.create(messages=messages, **settings)


def replicas(cluster: SimpleNamespace) -> dict[str, dict[str, Any]]:
    """Every replica that answers, by its name."""
    found: dict[str, dict[str, Any]] = {}

    def all_of_them() -> bool:
        # Any beginning, which a router sends anywhere.
        told = cluster.handle.describe.remote([os.urandom(8)]).result(timeout_s=PATIENCE_S)
        found[told["name"]] = told
        return len(found) == 2

    eventually(all_of_them, "there are no two replicas")
    return found


def test_openais_client_streams_from_two_nodes(cluster: SimpleNamespace) -> None:
    stream = cluster.client.chat.completions.create(
        model="demo",
        messages=[{"role": "user", "content": "What is CSS?"}],
        max_tokens=12,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    whole = ask(cluster.client, [{"role": "user", "content": "What is CSS?"}], max_tokens=12).parse()
    assert said and said == whole.choices[0].message.content
    assert chunks[-1].usage.completion_tokens == 12
    assert [model.id for model in cluster.client.models.list()] == ["demo"]
    with pytest.raises(openai.BadRequestError, match="top_p"):
        ask(cluster.client, [{"role": "user", "content": "x"}], top_p=7)
    with pytest.raises(openai.InternalServerError, match="one of several"):
        cluster.client.post("/model/unload", cast_to=object)
    nodes = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
    assert len(nodes) == 2 and len(replicas(cluster)) == 2
    deployed = serve.status().applications["pagella"].deployments["Replica"]
    assert deployed.status == "HEALTHY" and deployed.replica_states == {"RUNNING": 2}, deployed.message


def hit_rate(cluster: SimpleNamespace, salt: str, headers: dict[str, str]) -> tuple[float, int]:
    """Cached tokens over prompt tokens of several conversations, turn by turn; and at how many replicas a
    conversation was, at most."""
    talks: dict[str, list[Any]] = {f"{salt}{n}": [] for n in range(4)}
    places: dict[str, set[str]] = {name: set() for name in talks}
    cached = prompt = 0
    for turn in range(3):
        for name, messages in talks.items():
            messages.append({"role": "user", "content": text(name) if not turn else "Go on."})
            raw = ask(cluster.client, messages, extra_headers=headers)
            usage = raw.parse().usage
            cached += usage.prompt_tokens_details.cached_tokens
            prompt += usage.prompt_tokens
            places[name].add(raw.headers["x-pagella-replica"])
            messages.append({"role": "assistant", "content": raw.parse().choices[0].message.content})
    return cached / prompt, max(len(found) for found in places.values())


def test_a_shared_beginning_goes_where_it_is(
    cluster: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    routed, places = hit_rate(cluster, "Ada", {})
    assert places == 1
    scattered, _ = hit_rate(cluster, "Bob", {"x-pagella-route": "any"})
    with capsys.disabled():
        print(f"\ncached tokens of a prompt: {routed:.0%} by prefix, {scattered:.0%} anywhere")
    # The first of three turns finds nothing.
    assert routed > 0.5
    assert routed >= scattered


def test_a_client_that_leaves_cancels_its_job(cluster: SimpleNamespace) -> None:
    messages: list[Any] = [{"role": "user", "content": text("Eve")}]
    sent = json.dumps({"model": "demo", "messages": messages}).encode()
    before = sum(one["numbers"]["pagella_generation_tokens_total"] for one in replicas(cluster).values())
    stream = cluster.client.chat.completions.create(
        model="demo", messages=messages, max_tokens=1000, stream=True, extra_body={"ignore_eos": True}
    )
    place = stream.response.headers["x-pagella-replica"]
    for chunk in stream:
        if chunk.choices and chunk.choices[0].delta.content:
            break
    stream.close()
    keys = keys_of(sent, "Bearer none")

    def idle() -> dict[str, Any] | None:
        told: dict[str, Any] = cluster.handle.describe.remote(keys).result(timeout_s=PATIENCE_S)
        # Another router, which has never seen the request, knows where it is.
        assert told["name"] == place
        return told if told["numbers"]["pagella_num_requests_running"] == 0 else None

    eventually(idle, "the job goes on")
    after = sum(one["numbers"]["pagella_generation_tokens_total"] for one in replicas(cluster).values())
    assert after - before < 1000


def test_a_replica_that_dies_loses_no_request_that_had_not_begun(cluster: SimpleNamespace) -> None:
    known = replicas(cluster)
    stream = cluster.client.chat.completions.create(
        model="demo",
        messages=[{"role": "user", "content": "Tell me all."}],
        max_tokens=1500,
        stream=True,
        extra_body={"ignore_eos": True},
    )
    victim = known[stream.response.headers["x-pagella-replica"]]
    next(iter(stream))
    # It neither goes on with what has begun nor begins anything.
    os.kill(victim["server_pid"], signal.SIGSTOP)
    questions = to_both(victim["name"], list(known), 8)
    actor = ray.get_actor(f"SERVE_REPLICA::pagella#Replica#{victim['name']}", namespace="serve")
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(ask, cluster.client, [one], max_tokens=4) for one in questions]

        def stuck() -> bool:
            try:
                # The stream is one of them.
                here = ray.get(actor.get_num_ongoing_requests.remote()) - 1
            except ray.exceptions.RayActorError:
                # All this took so long that Ray itself found that the server does not answer.
                return True
            return bool(here == 4 and sum(one.done() for one in asked) == 4)

        eventually(stuck, "half of the requests should be there")
        for pid, sent in ((victim["pid"], signal.SIGKILL), (victim["server_pid"], signal.SIGCONT)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, sent)
        answers = [one.result(timeout=PATIENCE_S).parse() for one in asked]
    assert all(answer.usage.completion_tokens == 4 for answer in answers)
    # What had begun cannot be taken back: it ends with an error, not as if it were complete.
    with pytest.raises(openai.APIError, match="replica"):
        for _ in stream:
            pass
    eventually(lambda: victim["name"] not in replicas(cluster), "the replica did not come back")
    # Its server went with it.
    eventually(lambda: not alive(victim["server_pid"]), "the server outlives its replica")


def to_both(one: str, both: list[str], n: int) -> list[dict[str, str]]:
    """So many new questions, half of which go to this replica."""
    here: list[dict[str, str]] = []
    there: list[dict[str, str]] = []
    for number in itertools.count():
        message = {"role": "user", "content": text(f"N{number}")}
        sent = json.dumps({"messages": [message], "model": "demo"}).encode()
        first = keys_of(sent, "Bearer none")[0]
        (here if order(dict.fromkeys(both, 0), {}, first, 8)[0] == one else there).append(message)
        if min(len(here), len(there)) >= n // 2:
            return here[: n // 2] + there[: n // 2]
    raise AssertionError


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_load_decides_how_many_replicas_there_are() -> None:
    def wanted(requests: float, waiting: float, cache_used: float) -> float:
        config = SimpleNamespace(get_target_ongoing_requests=lambda: 32.0)
        metrics = {"waiting": {"a": waiting, "b": waiting}, "cache_used": {"a": cache_used, "b": cache_used}}
        context: Any = SimpleNamespace(
            current_num_replicas=2,
            target_num_replicas=2,
            total_num_requests=requests,
            aggregated_metrics=metrics,
            config=config,
        )
        return wanted_replicas(context)[0]

    assert wanted(64, 0, 0.1) == 2
    assert wanted(100, 0, 0.1) == 4
    assert wanted(10, 6, 0.1) == 6
    assert wanted(10, 0, 1.0) == 3
    assert wanted(10, 0, 0.1) == 1


def test_what_cannot_be_deployed_is_refused() -> None:
    with pytest.raises(ValueError, match="one device"):
        app("demo", num_gpus=2)
    with pytest.raises(ValueError, match="balanced"):
        app("demo", route="fastest")
    with pytest.raises(TypeError, match="replica_count"):
        build({"model": "demo", "replica_count": 3})
    assert build({"model": "demo", "replicas": [1, 4]})


def test_the_configuration_file_is_one() -> None:
    file = Path(__file__).parents[3] / "packaging" / "serve.yaml"
    told = ServeDeploySchema.model_validate(yaml.safe_load(file.read_text(encoding="utf-8")))
    (application,) = told.applications
    assert application.import_path == "pagella.serve.ray:build"
    assert build(dict(application.args))


def test_a_server_ends_with_whoever_started_it() -> None:
    code = (
        "import os\nfrom pagella.serve._server import Server\n"
        "server = Server('demo')\nserver.wait_ready(240)\nprint(server.pid, flush=True)\nos.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    pid = int(done.stdout)
    eventually(lambda: not alive(pid), "the server outlives its parent")
