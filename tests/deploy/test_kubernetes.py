"""The Kubernetes manifests: what they name exists, the times fit, and the schemas accept them."""

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.deploy.product import (
    DEFAULTS,
    DEPLOY,
    LAST_BYTES,
    VERSION,
    check,
    documents,
    pinned,
    program,
    settings,
    surgetank_lines,
    understood,
)

from surgetank.control.config import Config
from surgetank.dashboards.prometheus import BACKEND_JOB, SIDECAR_JOB

FOLDER = DEPLOY / "kubernetes"
ENGINE_PORT = 8000
ENGINE_END = 10.0  # seconds for vLLM to end, when the sidecar has


def one(name: str) -> Any:
    (document,) = documents(FOLDER / name)
    return document


DEPLOYMENT = one("deployment.yaml")
POD = DEPLOYMENT["spec"]["template"]["spec"]
(SIDECAR,) = POD["containers"]
(ENGINE,) = POD["initContainers"]
REDIS = documents(FOLDER / "redis.yaml")


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """What the sidecar's container is configured to."""
    file = tmp_path / "surgetank.toml"
    file.write_text(one("configmap.yaml")["data"]["surgetank.toml"])
    secret = one("secret.example.yaml")["stringData"]
    env = {
        item["name"]: item.get("value") or secret[item["valueFrom"]["secretKeyRef"]["key"]]
        for item in SIDECAR["env"]
    }
    return settings(env, file)


@contextmanager
def answering(status: int) -> Iterator[int]:
    """A door that answers everything so; gives its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def ports(container: Any) -> dict[str, int]:
    return {port["name"]: port["containerPort"] for port in container["ports"]}


def test_the_command_and_the_settings_exist(config: Config) -> None:
    understood(["surgetank", *SIDECAR["args"]])
    assert config.backends[0].url == f"http://127.0.0.1:{ENGINE_PORT}"
    assert config.backends[0].api_key.get_secret_value()
    assert config.leases.sidecars == DEPLOYMENT["spec"]["replicas"]
    assert config.leases.url is not None
    (redis,) = (each for each in REDIS if each["kind"] == "Service")
    name, port = redis["metadata"]["name"], redis["spec"]["ports"][0]["port"]
    assert config.leases.url.get_secret_value() == f"redis://{name}:{port}/0"


def test_mounts_are_where_the_settings_look(config: Config) -> None:
    mounts = {mount["mountPath"] for mount in SIDECAR["volumeMounts"]}
    assert config.tenants.keys_file is not None
    assert str(config.tenants.keys_file.parent) in mounts
    assert str(Path(SIDECAR["args"][-1]).parent) in mounts
    assert {"/var/lib/surgetank", "/run/surgetank", "/tmp"} <= mounts  # the rest is read-only
    volumes = {volume["name"] for volume in POD["volumes"]}
    for container in (SIDECAR, ENGINE):
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes


def test_secrets_that_are_asked_for_stand_in_the_example() -> None:
    known = set(one("secret.example.yaml")["stringData"])
    for item in [*SIDECAR["env"], *ENGINE["env"]]:
        if "valueFrom" in item:
            reference = item["valueFrom"]["secretKeyRef"]
            assert reference["key"] in known or reference.get("optional"), item["name"]
    (keys,) = (volume["secret"] for volume in POD["volumes"] if "secret" in volume)
    assert {item["key"] for item in keys["items"]} <= known


def test_ports_are_those_of_the_product_and_clients_reach_no_other() -> None:
    doors = {"http": DEFAULTS.http.port, "grpc": DEFAULTS.grpc.port}
    assert ports(SIDECAR) == doors
    assert ports(ENGINE) == {"engine": ENGINE_PORT}
    offered = {port["targetPort"] for port in one("service.yaml")["spec"]["ports"]}
    assert offered == set(doors)
    clients, scrapers = one("networkpolicy.yaml")["spec"]["ingress"]
    assert {port["port"] for port in clients["ports"]} == set(doors)
    assert "from" not in clients
    assert [port["port"] for port in scrapers["ports"]] == ["engine"]
    assert scrapers["from"]


def test_probes_are_split() -> None:
    paths = {
        probe: SIDECAR[probe]["httpGet"]["path"]
        for probe in ("startupProbe", "readinessProbe", "livenessProbe")
    }
    assert paths == {
        "startupProbe": "/health/live",
        "readinessProbe": "/health/ready",
        "livenessProbe": "/health/live",
    }


def test_a_hung_engine_is_restarted_before_its_sidecar() -> None:
    asks = ENGINE["livenessProbe"]
    code = compile(asks["exec"]["command"][-1], "probe", "exec")
    assert f"http://127.0.0.1:{DEFAULTS.http.port}/health/live" in code.co_consts
    engine = asks["periodSeconds"] * asks["failureThreshold"]
    engine += asks["terminationGracePeriodSeconds"]
    own = SIDECAR["livenessProbe"]
    assert own["periodSeconds"] * own["failureThreshold"] >= 2 * engine


def test_the_engine_starts_first_and_ends_last() -> None:
    assert ENGINE["restartPolicy"] == "Always"
    assert ENGINE["startupProbe"]["failureThreshold"] > 1


def before_the_signal() -> tuple[float, float, str]:
    """preStop: seconds until the drain, seconds after it, its shell text."""
    script = SIDECAR["lifecycle"]["preStop"]["exec"]["command"][-1]
    pauses = [float(pause) for pause in re.findall(r"sleep (\d+)", script)]
    first, second = pauses
    assert script.index("sleep") < script.index("surgetank drain") < script.rindex("sleep")
    return first, second, script


def test_pre_stop_drains_with_a_command_that_exists() -> None:
    _, second, script = before_the_signal()
    (command,) = surgetank_lines(script)
    assert command[:2] == ["surgetank", "drain"]
    understood(command)
    ready = SIDECAR["readinessProbe"]
    assert second >= ready["periodSeconds"] * ready["failureThreshold"]  # it is seen by then


def test_the_grace_period_covers_everything(config: Config) -> None:
    first, second, _ = before_the_signal()
    command = 5.0  # the drain's own process
    needed = first + command + second + config.control.drain_timeout + LAST_BYTES + ENGINE_END
    assert needed <= POD["terminationGracePeriodSeconds"]


def test_nothing_of_ours_may_do_what_it_need_not() -> None:
    assert POD["automountServiceAccountToken"] is False
    assert POD["enableServiceLinks"] is False
    assert POD["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
    (redis,) = (each for each in REDIS if each["kind"] == "Deployment")
    (store,) = redis["spec"]["template"]["spec"]["containers"]
    for container in (SIDECAR, store):
        context = container["securityContext"]
        assert context["readOnlyRootFilesystem"] is True
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["limits"]["memory"]
    for container in (SIDECAR, ENGINE, store):
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        pinned(container["image"])
    assert SIDECAR["securityContext"]["runAsNonRoot"] is True


def test_the_image_is_this_version() -> None:
    assert SIDECAR["image"] == f"surgetank:{VERSION}"
    (image,) = one("kustomization.yaml")["images"]
    assert image == {"name": "surgetank", "newName": "surgetank", "newTag": VERSION}


def test_everything_that_belongs_to_all_clusters_is_applied() -> None:
    files = {path.name for path in FOLDER.glob("*.yaml")}
    apart = {"kustomization.yaml", "secret.example.yaml", "podmonitor.yaml", "redis.yaml"}
    assert set(one("kustomization.yaml")["resources"]) == files - apart


def test_selectors_select() -> None:
    labels = DEPLOYMENT["spec"]["template"]["metadata"]["labels"]
    assert DEPLOYMENT["spec"]["selector"]["matchLabels"] == labels
    assert one("service.yaml")["spec"]["selector"] == labels
    assert one("networkpolicy.yaml")["spec"]["podSelector"]["matchLabels"] == labels
    for name in ("poddisruptionbudget.yaml", "podmonitor.yaml"):
        assert one(name)["spec"]["selector"]["matchLabels"] == labels


def test_what_is_scraped_carries_the_names_that_boards_and_rules_know() -> None:
    jobs = {}
    for endpoint in one("podmonitor.yaml")["spec"]["podMetricsEndpoints"]:
        assert endpoint["path"] == "/metrics"
        labels = {rule["targetLabel"]: rule for rule in endpoint["relabelings"]}
        assert labels["instance"]["sourceLabels"] == ["__meta_kubernetes_pod_name"]
        jobs[endpoint["port"]] = labels["job"]["replacement"]
    assert jobs == {"http": SIDECAR_JOB, "engine": BACKEND_JOB}


def test_the_schemas_accept_them() -> None:
    """Not kustomization.yaml and podmonitor.yaml: those kinds are no part of Kubernetes itself."""
    no_schema = ("kustomization.yaml", "podmonitor.yaml")
    files = [str(path) for path in sorted(FOLDER.glob("*.yaml")) if path.name not in no_schema]
    check(program("kubernetes-validate"), "--strict", "--kubernetes-version", "1.37.0", *files)


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1), (404, 0), (None, 0)])
def test_the_engines_probe_fails_by_the_sidecars_word_alone(status: int | None, code: int) -> None:
    """None: no door there, as while the sidecar starts; no reason to restart the engine."""
    with answering(status or 200) as port:
        answered = port if status else 9
        *command, script = ENGINE["livenessProbe"]["exec"]["command"]
        script = script.replace(f":{DEFAULTS.http.port}/", f":{answered}/")
        done = subprocess.run([sys.executable, *command[1:], script], timeout=30)
    assert done.returncode == code


def test_the_shell_understands_pre_stop() -> None:
    *shell, script = SIDECAR["lifecycle"]["preStop"]["exec"]["command"]
    assert shell == ["sh", "-c"]
    check("sh", "-n", "-c", script)
