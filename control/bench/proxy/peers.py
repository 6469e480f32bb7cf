"""The proxies of the bench: how each is started before the engine stub, with one thread of work."""

import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

OURS = "surgetank"
DIRECT = "direct"
NGINX, ENVOY, SMG, LITELLM = "nginx", "envoy", "smg", "litellm"
SPLICE = "splice"  # in Python, deciding nothing: what lies under ours
PEERS = (NGINX, ENVOY, SMG, LITELLM, SPLICE)
PEERS_BIN = Path(".venv-proxies/bin")
HOW = {
    NGINX: "apt install nginx",
    ENVOY: "make proxies",
    SMG: "make proxies",
    LITELLM: "make proxies",
}
MOST_STREAMS = 16_384


@dataclass(frozen=True, slots=True)
class Plan:
    """How to start one."""

    name: str
    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)


def plan(name: str, upstream: int, port: int, folder: Path) -> Plan | None:
    """`name` on `port` before the stub on `upstream`, its files in `folder`; None where it is not
    installed."""
    if name == OURS:
        return _surgetank(upstream, port, folder)
    if name == SPLICE:
        words = ("-m", "surgetank.control.bench.proxy.splice", str(upstream), str(port))
        return Plan(SPLICE, (sys.executable, *words))
    binary = shutil.which(name, path=os.pathsep.join([str(PEERS_BIN.absolute()), *_paths()]))
    return None if binary is None else _PLANS[name](binary, upstream, port, folder)


def _paths() -> list[str]:
    """nginx lies where only root's shell looks."""
    return [*os.environ.get("PATH", os.defpath).split(os.pathsep), "/usr/sbin", "/usr/local/sbin"]


def _surgetank(upstream: int, port: int, folder: Path) -> Plan:
    """The sidecar as it is shipped, its gate deciding on every request; the engine is told to be so
    large, and the targets so far, that it decides for each of them. What acts on a stalled engine
    is off: thousands of silent streams are one."""
    settings = (
        f"backends.0.url=http://127.0.0.1:{upstream}",
        f"backends.0.max_num_seqs={MOST_STREAMS}",
        f"gate.in_flight_seqs={MOST_STREAMS}",
        f"gate.queue_requests={MOST_STREAMS}",
        "gate.queue_tokens=100000000",
        "gate.queue_wait=600",
        "gate.laws.brownout=false",
        "gate.laws.recovery=false",
        "slo.ttft=600",
        "slo.tpot=60",
        f"http.port={port}",
        f"http.max_connections={MOST_STREAMS}",
        "grpc.port=0",
        "admin.port=0",
        "log.level=error",
        f"control.journal={folder / 'journal.jsonl'}",
        f"engine.socket={folder / 'engine.sock'}",
    )
    sets = tuple(f"--set={each}" for each in settings)
    return Plan(OURS, (sys.executable, "-m", "surgetank", "sidecar", *sets))


def _nginx(binary: str, upstream: int, port: int, folder: Path) -> Plan:
    path = folder / "nginx.conf"
    temporary = "".join(
        f"{name}_temp_path {folder / name};" for name in ("client_body", "proxy", *_UNUSED)
    )
    path.write_text(f"""
daemon off; worker_processes 1; pid {folder / "nginx.pid"}; error_log stderr error;
worker_rlimit_nofile 20000;
events {{ worker_connections 19000; }}
http {{
  access_log off; {temporary}
  upstream engine {{ server 127.0.0.1:{upstream}; keepalive 512; keepalive_requests 1000000; }}
  server {{
    listen 127.0.0.1:{port}; keepalive_requests 1000000;
    location / {{
      proxy_pass http://engine; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_buffering off; proxy_read_timeout 3600s;
    }}
  }}
}}
""")
    return Plan(NGINX, (binary, "-p", str(folder), "-c", str(path), "-e", "stderr"))


_UNUSED = ("fastcgi", "uwsgi", "scgi")


def _envoy(binary: str, upstream: int, port: int, folder: Path) -> Plan:
    def at(number: int) -> dict[str, object]:
        return {"socket_address": {"address": "127.0.0.1", "port_value": number}}

    router = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"
    manager = (
        "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3"
        ".HttpConnectionManager"
    )
    route = {"match": {"prefix": "/"}, "route": {"cluster": "engine", "timeout": "0s"}}
    http = {
        "@type": manager,
        "stat_prefix": "bench",
        "codec_type": "HTTP1",
        "http_filters": [
            {"name": "envoy.filters.http.router", "typed_config": {"@type": router}},
        ],
        "route_config": {
            "virtual_hosts": [{"name": "engine", "domains": ["*"], "routes": [route]}]
        },
    }
    chain = {"filters": [{"name": "http", "typed_config": http}]}
    endpoint = {"endpoint": {"address": at(upstream)}}
    most = {"max_connections": MOST_STREAMS, "max_requests": MOST_STREAMS}
    cluster = {
        "name": "engine",
        "type": "STATIC",
        "connect_timeout": "5s",
        "circuit_breakers": {"thresholds": [{**most, "max_pending_requests": MOST_STREAMS}]},
        "load_assignment": {"cluster_name": "engine", "endpoints": [{"lb_endpoints": [endpoint]}]},
    }
    path = folder / "envoy.json"
    listener = {"address": at(port), "filter_chains": [chain]}
    path.write_text(
        json.dumps({"static_resources": {"listeners": [listener], "clusters": [cluster]}})
    )
    quiet = ("--concurrency", "1", "--log-level", "error", "--disable-hot-restart")
    return Plan(ENVOY, (binary, "-c", str(path), *quiet))


def _smg(binary: str, upstream: int, port: int, folder: Path) -> Plan:
    words = (
        *("launch", "--host", "127.0.0.1", "--port", str(port)),
        *("--worker-urls", f"http://127.0.0.1:{upstream}"),
        *("--policy", "round_robin", "--log-level", "error"),
    )
    return Plan(SMG, (binary, *words), {"TOKIO_WORKER_THREADS": "1"})


def _litellm(binary: str, upstream: int, port: int, folder: Path) -> Plan:
    path = folder / "litellm.json"
    at = {"api_base": f"http://127.0.0.1:{upstream}/v1", "api_key": "bench"}
    model = {"model_name": "stub", "litellm_params": {"model": "openai/stub", **at}}
    open_to_all = {"dangerously_permit_weak_or_unset_master_key": True}  # as the others here
    path.write_text(json.dumps({"model_list": [model], "general_settings": open_to_all}))
    words = ("--host", "127.0.0.1", "--port", str(port), "--config", str(path))
    env = {"LITELLM_LOG": "ERROR", "LITELLM_LOCAL_MODEL_COST_MAP": "True", "NO_DOCS": "True"}
    return Plan(LITELLM, (binary, *words), env)


_PLANS: Mapping[str, Callable[[str, int, int, Path], Plan]] = {
    NGINX: _nginx,
    ENVOY: _envoy,
    SMG: _smg,
    LITELLM: _litellm,
}
