"""The compose file and the manifest, read as the tools read them; and what each promises in its comments."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

import kubernetes_validate
import pytest
import yaml
from compose_spec import PyOptions
from kubernetes_validate.utils import all_versions

from app.container.health import PORTS
from app.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = (ROOT / "docker-compose.yml").read_text()
MANIFESTS = {role: (ROOT / "k8s" / f"{role}.yaml").read_text() for role in ("worker", "beat")}
MANIFEST = MANIFESTS["worker"]
PAGES = {"worker": "run-in-pods.md", "beat": "schedule.md"}
DOCKERFILE = (ROOT / "Dockerfile").read_text()
USER = "10001"
VERSIONS = sorted(set(all_versions()))
"""Every Kubernetes whose schemas are known, such as 1.25."""


def with_defaults(text: str) -> str:
    """The compose file as it is when no variable is set."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)


def services() -> dict[str, dict[str, Any]]:
    """The services of the compose file, with what they share merged in."""
    return yaml.safe_load(with_defaults(COMPOSE))["services"]


def pod(role: str) -> dict[str, Any]:
    """The pod of a role's manifest."""
    return yaml.safe_load(MANIFESTS[role])["spec"]["template"]["spec"]


# ---------------------------------------------------------------- compose


def test_the_compose_file_is_what_the_specification_allows() -> None:
    compose = PyOptions(apply_merge=True).from_yaml(with_defaults(COMPOSE))
    assert sorted(compose.service_names()) == ["beat", "flower", "redis", "worker"]


def test_a_misspelt_key_in_the_compose_file_would_be_noticed() -> None:
    with pytest.raises(ValueError, match="stop_grace"):
        PyOptions(apply_merge=True).from_yaml(with_defaults(COMPOSE).replace("stop_grace_period", "stop_grace"))


@pytest.mark.parametrize("name", services())
def test_every_service_is_confined_limited_and_looked_at(name: str) -> None:
    service = services()[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["user"] == ("redis" if name == "redis" else f"{USER}:{USER}")
    assert {"mem_limit", "cpus", "pids_limit", "stop_grace_period", "restart", "healthcheck"} <= set(service)
    assert "inspect" not in service["healthcheck"]["test"]


@pytest.mark.parametrize("name", services())
def test_no_service_has_a_name_that_a_second_container_would_clash_with(name: str) -> None:
    assert {"container_name", "hostname"} & set(services()[name]) == set()
    assert "POD_NAME" not in (services()[name].get("environment") or {})


def test_three_workers_wait_for_a_redis_that_keeps_what_it_is_given() -> None:
    worker, redis = services()["worker"], services()["redis"]
    assert worker["scale"] == 3
    assert worker["depends_on"] == {"redis": {"condition": "service_healthy"}}
    command = redis["command"]
    assert command[command.index("--appendonly") + 1] == "yes"
    assert command[command.index("--maxmemory-policy") + 1] == "noeviction"
    assert redis["volumes"] == ["redis:/data"]
    assert "ports" not in redis


def test_flower_is_published_to_this_machine_alone() -> None:
    assert services()["flower"]["ports"] == ["127.0.0.1:5555:5555"]
    assert [name for name, service in services().items() if "ports" in service] == ["flower"]


# ---------------------------------------------------------------- kubernetes


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("role", MANIFESTS)
def test_the_manifest_is_what_this_kubernetes_allows(role: str, version: str) -> None:
    kubernetes_validate.validate(yaml.safe_load(MANIFESTS[role]), version, strict=True)


SHARDS = list(yaml.safe_load_all((ROOT / "k8s" / "shards.yaml").read_text()))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("part", SHARDS, ids=lambda part: part["kind"])
def test_what_shards_need_is_what_this_kubernetes_allows(part: dict[str, Any], version: str) -> None:
    kubernetes_validate.validate(part, version, strict=True)


def test_shards_may_list_pods_and_nothing_else() -> None:
    account, role, binding = SHARDS
    assert role["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account["metadata"]["name"]}]


def test_a_bots_token_comes_from_a_secret_that_need_not_be_there() -> None:
    (container,) = pod("worker")["containers"]
    found = {each["name"]: each.get("valueFrom", {}) for each in container["env"]}
    for name in ("DISCORD_TOKEN", "DISCORD_BOT_ID"):
        assert found[name]["secretKeyRef"]["optional"] is True


def test_the_schemas_reach_from_the_oldest_supported_kubernetes_to_the_newest() -> None:
    known = {tuple(int(part) for part in version.split(".")[:2]) for version in VERSIONS}
    assert min(known) <= (1, 25)
    assert max(known) >= (1, 37)


def test_a_misspelt_key_in_the_manifest_would_be_noticed() -> None:
    manifest = yaml.safe_load(MANIFEST.replace("terminationGracePeriodSeconds: 120", "terminationGracePeriod: 120"))
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(manifest, "1.37", strict=True)


@pytest.mark.parametrize("role", MANIFESTS)
def test_the_pod_is_confined(role: str) -> None:
    assert pod(role)["automountServiceAccountToken"] is False
    assert pod(role)["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": int(USER),
        "runAsGroup": int(USER),
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    (container,) = pod(role)["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["resources"]["requests"]["memory"] == container["resources"]["limits"]["memory"]


@pytest.mark.parametrize(("role", "grace_s"), [("worker", 60), ("beat", 10)])
def test_the_pod_is_named_by_kubernetes_and_has_time_to_finish(role: str, grace_s: int) -> None:
    (container,) = pod(role)["containers"]
    variables = {variable["name"]: variable for variable in container["env"]}
    assert variables["POD_NAME"]["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    assert "secretKeyRef" in variables["REDIS_URL"]["valueFrom"]
    assert pod(role)["terminationGracePeriodSeconds"] >= grace_s


@pytest.mark.parametrize("role", MANIFESTS)
def test_the_manifest_runs_what_the_compose_file_runs(role: str) -> None:
    (container,) = pod(role)["containers"]
    service = services()[role]
    assert container["args"] == service["command"]
    assert service["healthcheck"]["test"] == ["CMD", "python3", "-m", "app.container", "health", role]


@pytest.mark.parametrize("role", MANIFESTS)
@pytest.mark.parametrize(
    ("probe", "path"), [("startupProbe", "/startup"), ("readinessProbe", "/ready"), ("livenessProbe", "/health")]
)
def test_kubernetes_asks_the_probes_where_they_answer(role: str, probe: str, path: str) -> None:
    (container,) = pod(role)["containers"]
    assert container[probe]["httpGet"] == {"path": path, "port": "probes"}
    assert {"name": "probes", "containerPort": Settings.model_fields["probe_port"].default} in container["ports"]
    assert PORTS[role] == Settings.model_fields["probe_port"].default


@pytest.mark.parametrize("role", MANIFESTS)
def test_a_pod_is_restarted_only_after_its_loop_has_stood_for_long(role: str) -> None:
    (container,) = pod(role)["containers"]
    liveness, startup = container["livenessProbe"], container["startupProbe"]
    assert liveness["periodSeconds"] * liveness["failureThreshold"] >= 60, "C code may keep Python's lock meanwhile"
    assert startup["periodSeconds"] * startup["failureThreshold"] >= 120, "longer than the start waits for Redis"


def test_two_beats_run_side_by_side() -> None:
    manifest = yaml.safe_load(MANIFESTS["beat"])["spec"]
    assert manifest["replicas"] == 2
    assert "rollingUpdate" in manifest["strategy"]
    assert "Never scale" not in COMPOSE


@pytest.mark.parametrize("role", MANIFESTS)
def test_the_page_shows_the_manifest_as_it_is(role: str) -> None:
    assert f"```yaml\n{MANIFESTS[role]}```\n" in (ROOT / "docs" / "how-to" / PAGES[role]).read_text()


# ---------------------------------------------------------------- the image


def test_the_image_runs_as_the_user_that_compose_and_kubernetes_name_without_a_shell() -> None:
    assert f"\nUSER {USER}:{USER}\n" in DOCKERFILE
    entry = re.search(r"^ENTRYPOINT (.*)$", DOCKERFILE, re.MULTILINE)
    assert entry is not None
    assert cast("list[str]", yaml.safe_load(entry[1])) == ["python3", "-m", "app.container"]


def test_the_image_is_built_on_whatever_base_one_has() -> None:
    assert "\nARG BASE=python:3.11-slim\n" in DOCKERFILE
    assert set(re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)) == {"${BASE}"}
    # A syntax line would make every build fetch its own reader of this file from a registry.
    assert not DOCKERFILE.startswith("# syntax")


def test_the_build_sees_nothing_but_what_the_image_is_made_of() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    copied = {
        name for line in re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.MULTILINE) for name in line.split()
    }
    assert {rule[1:] for rule in rules if rule.startswith("!")} == copied
