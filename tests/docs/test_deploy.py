"""The files of deploy/ fit the program: their metrics, paths, exit codes and configuration exist."""

import json
import re
import shutil
import subprocess
import sys
from configparser import RawConfigParser
from pathlib import Path
from typing import Any

import pytest
import yaml

from connector import __version__
from connector.config.loading import Config, load, validated
from connector.core.timestamps import SECOND
from connector.errors import FAILED_PERMANENTLY, ConfigurationError, DataLostError
from connector.telemetry import server
from emulator.__main__ import workload
from emulator.official import container
from tests.docs.command_lines import unknown
from tests.docs.pages import ROOT

DEPLOY = ROOT / "deploy"
SOURCE = {"project": "my-project", "instance": "my-instance", "database": "my-database", "change_stream": "Everything"}
METRIC = re.compile(r"\bspanner_cdc_[a-z_]+")


@pytest.mark.parametrize("name", ["grafana.json", "alerts.yaml"])
def test_every_metric_of_the_dashboard_and_the_alerts_exists(name: str) -> None:
    documented = set(METRIC.findall((ROOT / "docs/reference/metrics.md").read_text()))
    used = {found.removesuffix("_bucket") for found in METRIC.findall((DEPLOY / name).read_text())}
    assert used
    assert used - documented == set()


def test_every_alarm_that_an_alert_names_exists() -> None:
    named = set(re.findall(r'spanner_cdc_alarms\{name="(\w+)"', (DEPLOY / "alerts.yaml").read_text()))
    assert "records_were_late" in named, "a reader that a late record stops serves no count that is scraped"
    documented = set(re.findall(r"^\| `(\w+)`", (ROOT / "docs/operations.md").read_text(), re.MULTILINE))
    assert named - documented == set()


def test_the_dashboard_and_the_alerts_can_be_read() -> None:
    panels = json.loads((DEPLOY / "grafana.json").read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    (group,) = yaml.safe_load((DEPLOY / "alerts.yaml").read_text())["groups"]
    assert all(rule["expr"] and rule["annotations"]["summary"] for rule in group["rules"])


def test_more_dead_letters_are_an_alert_though_the_alarm_is_raised_already() -> None:
    (group,) = yaml.safe_load((DEPLOY / "alerts.yaml").read_text())["groups"]
    assert "increase(spanner_cdc_dead_letters_total[1h]) > 0" in {rule["expr"] for rule in group["rules"]}


def test_the_dashboard_shows_the_chosen_daemons_and_the_alerts_name_theirs() -> None:
    dashboard = json.loads((DEPLOY / "grafana.json").read_text())
    assert "instance" in {variable["name"] for variable in dashboard["templating"]["list"]}
    shown = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert [expr for expr in shown if expr.count('instance=~"$instance"') != len(METRIC.findall(expr)) > 0] == []
    (group,) = yaml.safe_load((DEPLOY / "alerts.yaml").read_text())["groups"]
    assert all("$labels.instance" in rule["annotations"]["summary"] for rule in group["rules"])


def unit() -> RawConfigParser:
    """The unit of systemd."""
    found = RawConfigParser(strict=False)
    found.optionxform = str  # type: ignore[assignment,method-assign]
    found.read(DEPLOY / "spanner-cdc.service")
    return found


def test_the_unit_heals_after_an_outage_of_any_length() -> None:
    assert unit()["Unit"]["StartLimitIntervalSec"] == "0", "systemd would give up"
    service = unit()["Service"]
    assert service["Restart"] == "on-failure"
    assert int(service["RestartSec"]) >= 30, "a day of attempts would flood the log"


def test_the_unit_starts_and_reloads_a_command_and_leaves_final_exit_codes_to_people() -> None:
    service = unit()["Service"]
    for command in (service["ExecStart"], service["ExecReload"]):
        assert unknown(command.partition("spanner-cdc/bin/spanner-cdc ")[2]) == []
    final = {int(code) for code in service["RestartPreventExitStatus"].split()}
    assert final == {ConfigurationError.exit_code, DataLostError.exit_code, FAILED_PERMANENTLY}


def test_the_unit_waits_for_a_sink_that_drains_too_long_and_has_files_for_many_partitions() -> None:
    service = unit()["Service"]
    longest = validated({"source": SOURCE, "sink": {"path": "./out"}}).drain_timeout / SECOND
    assert int(service["TimeoutStopSec"]) > 3 * longest
    assert int(service["LimitNOFILE"]) > 1024


def kubernetes() -> dict[str, dict[str, Any]]:
    """The documents of the base by their kind."""
    return {one["kind"]: one for one in yaml.safe_load_all((DEPLOY / "kubernetes/service.yaml").read_text())}


def loaded(text: str, folder: Path) -> Config:
    path = folder / "config.yaml"
    path.write_text(text)
    return load(path)


def test_the_manifest_has_one_replica_probes_that_exist_and_a_configuration_that_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = kubernetes()["StatefulSet"]["spec"]
    assert spec["replicas"] == 1
    assert spec["serviceName"] == kubernetes()["Service"]["metadata"]["name"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    assert unknown(" ".join(container["args"])) == []
    probes = {probe: container[probe]["httpGet"]["path"] for probe in container if probe.endswith("Probe")}
    assert probes == {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}
    assert set(probes.values()) <= set(server._OPEN), "a probe sends no token"
    monkeypatch.setenv("STATUS_TOKEN", "a token")
    config = loaded((DEPLOY / "kubernetes/config.yaml").read_text(), tmp_path)
    assert config.status.token == "a token"
    assert pod["terminationGracePeriodSeconds"] > 3 * config.drain_timeout / SECOND


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kustomize_makes_manifests_of_the_base_with_the_image_and_the_configuration() -> None:
    command = ["kubectl", "kustomize", str(DEPLOY / "kubernetes")]
    made = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    documents = {one["kind"]: one for one in yaml.safe_load_all(made)}
    pod = documents["StatefulSet"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"].endswith(f"/spanner-cdc:{__version__}")
    (config,) = [volume["configMap"]["name"] for volume in pod["volumes"]]
    assert config == documents["ConfigMap"]["metadata"]["name"] != "spanner-cdc"
    assert documents.keys() == {*kubernetes(), "ConfigMap"}


def overlay_with(words: str) -> str:
    """The block of the page on Kubernetes with these words."""
    page = (ROOT / "docs/deployment/kubernetes.md").read_text()
    (found,) = [block for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if words in block]
    return str(found)


def manifests(folder: Path, overlay: str) -> str:
    """The manifests of an overlay in a folder beside a copy of deploy/."""
    if not (folder.parent / "deploy").exists():
        shutil.copytree(DEPLOY, folder.parent / "deploy")
    folder.mkdir()
    (folder / "kustomization.yaml").write_text(overlay)
    (folder / "config.yaml").write_text("source: {project: music}\n")
    return subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, check=True).stdout


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_overlays_of_several_streams_select_their_own_pods_alone(tmp_path: Path) -> None:
    labels, selectors = [], []
    for stream in ("orders", "customers"):
        overlay = overlay_with("# kustomization.yaml") + overlay_with("nameSuffix").replace("orders", stream)
        made = {one["kind"]: one for one in yaml.safe_load_all(manifests(tmp_path / stream, overlay))}
        service, daemon = made["Service"], made["StatefulSet"]
        assert daemon["spec"]["serviceName"] == service["metadata"]["name"] == f"spanner-cdc-{stream}"
        labels.append(daemon["spec"]["template"]["metadata"]["labels"])
        selectors.append([service["spec"]["selector"], daemon["spec"]["selector"]["matchLabels"]])
        monitored = yaml.safe_load(overlay_with("ServiceMonitor"))["spec"]
        assert monitored["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
        assert monitored["endpoints"][0]["port"] == service["spec"]["ports"][0]["name"]
    for pod, own in enumerate(labels):
        for of, found in enumerate(selectors):
            assert [selector.items() <= own.items() for selector in found] == [pod == of] * 2


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_the_overlay_for_maintenance_has_the_same_pod_without_the_daemon(tmp_path: Path) -> None:
    made = manifests(tmp_path / "my-stream", overlay_with("# kustomization.yaml"))
    idle = manifests(tmp_path / "my-stream-maintenance", overlay_with("components:"))
    (daemon,), (other,) = (
        [one for one in yaml.safe_load_all(text) if one["kind"] == "StatefulSet"] for text in (made, idle)
    )
    (container,), (without,) = (one["spec"]["template"]["spec"]["containers"] for one in (daemon, other))
    assert without.pop("command")[0] == "sh"
    for name in ("args", "startupProbe", "livenessProbe", "readinessProbe"):
        container.pop(name)
    assert daemon == other


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_the_overlay_of_the_page_replaces_every_name_of_the_base(tmp_path: Path) -> None:
    made = manifests(tmp_path / "my-stream", overlay_with("# kustomization.yaml"))
    assert "project: music" in made
    assert "my-" not in made
    assert {one["metadata"]["namespace"] for one in yaml.safe_load_all(made)} == {"replication"}


def test_the_demonstration_runs_what_exists_with_a_configuration_that_loads(tmp_path: Path) -> None:
    demonstration = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    services, configs = demonstration["services"], demonstration["configs"]
    images = [one["image"] for one in services.values() if "image" in one]
    assert all(re.search(r":v?\d+\.\d+\.\d+$", image) for image in images), "an image is not pinned"
    assert f"{container.REPOSITORY}:{container._DEFAULT_TAG}" in images
    assert {one["source"] for service in services.values() for one in service.get("configs", ())} == configs.keys()
    mounted = [volume for service in services.values() for volume in service.get("volumes", ()) if volume[0] == "."]
    assert all((DEPLOY / volume.split(":")[0]).is_file() for volume in mounted)
    published = [port for service in services.values() for port in service.get("ports", ())]
    assert all(port.startswith("127.0.0.1:") for port in published), "there is no token"
    config = loaded(configs["config"]["content"], tmp_path)
    command = services["workload"]["command"]
    assert config.source.database == command[command.index("--database") + 1]
    assert {option for option in command if option.startswith("--")} <= {
        name for parameter in workload.params for name in parameter.opts
    }
    (scraped,) = yaml.safe_load(configs["prometheus"]["content"])["scrape_configs"]
    assert f'job="{scraped["job_name"]}"' in (DEPLOY / "alerts.yaml").read_text()
    assert scraped["static_configs"] == [{"targets": [f"spanner-cdc:{config.status.port}"]}]


def test_hadolint_finds_nothing_in_the_image_and_every_user_is_a_number() -> None:
    program = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([program, DEPLOY / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    users = re.findall(r"^USER (.*)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    security = kubernetes()["StatefulSet"]["spec"]["template"]["spec"]["securityContext"]
    assert set(users) == {f"{security['runAsUser']}:{security['runAsGroup']}"}


def test_the_image_has_the_extras_of_every_sink_and_a_health_check_that_exists() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    (extras,) = re.findall(r"/src\[([a-z,]+)\]", text)
    assert set(extras.split(",")) == {"reader", "spark", "gcs", "bigquery", "avro"}
    assert "http://127.0.0.1:8080/healthz" in text
    assert unknown(" ".join(json.loads(text.rpartition("CMD ")[2]))) == []
