"""The files of deploy/ fit the program: their metrics, paths, exit codes and configuration exist."""

import json
import re
from configparser import RawConfigParser

import pytest
import yaml

from connector.config.loading import load
from connector.core.timestamps import SECOND
from connector.errors import FAILED_PERMANENTLY, ConfigurationError, DataLostError
from connector.telemetry import server
from tests.docs.command_lines import unknown
from tests.docs.pages import ROOT

DEPLOY = ROOT / "deploy"
METRIC = re.compile(r"\bspanner_cdc_[a-z_]+")


@pytest.mark.parametrize("name", ["grafana.json", "alerts.yaml"])
def test_every_metric_of_the_dashboard_and_the_alerts_exists(name: str) -> None:
    documented = set(METRIC.findall((ROOT / "docs/reference/metrics.md").read_text()))
    used = {found.removesuffix("_bucket") for found in METRIC.findall((DEPLOY / name).read_text())}
    assert used
    assert used - documented == set()


def test_the_dashboard_and_the_alerts_can_be_read() -> None:
    panels = json.loads((DEPLOY / "grafana.json").read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    (group,) = yaml.safe_load((DEPLOY / "alerts.yaml").read_text())["groups"]
    assert all(rule["expr"] and rule["annotations"]["summary"] for rule in group["rules"])


def test_the_dashboard_shows_the_chosen_daemons_and_the_alerts_name_theirs() -> None:
    dashboard = json.loads((DEPLOY / "grafana.json").read_text())
    assert "instance" in {variable["name"] for variable in dashboard["templating"]["list"]}
    shown = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert [expr for expr in shown if expr.count('instance=~"$instance"') != len(METRIC.findall(expr)) > 0] == []
    (group,) = yaml.safe_load((DEPLOY / "alerts.yaml").read_text())["groups"]
    assert all("$labels.instance" in rule["annotations"]["summary"] for rule in group["rules"])


def test_the_unit_starts_a_command_and_leaves_final_exit_codes_to_people() -> None:
    unit = RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(DEPLOY / "spanner-cdc.service")
    service = unit["Service"]
    assert unknown(service["ExecStart"].partition("spanner-cdc/bin/spanner-cdc ")[2]) == []
    final = {int(code) for code in service["RestartPreventExitStatus"].split()}
    assert final == {ConfigurationError.exit_code, DataLostError.exit_code, FAILED_PERMANENTLY}


def test_the_manifest_has_one_replica_probes_that_exist_and_a_configuration_that_loads(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = {one["kind"]: one for one in yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())}
    spec = documents["StatefulSet"]["spec"]
    assert spec["replicas"] == 1
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    assert unknown(" ".join(container["args"])) == []
    for probe in ("startupProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["path"] in server._OPEN, "a probe sends no token"
    path = tmp_path_factory.mktemp("config") / "config.yaml"
    path.write_text(documents["ConfigMap"]["data"]["config.yaml"])
    monkeypatch.setenv("STATUS_TOKEN", "a token")
    config = load(path)
    assert config.status.token == "a token"
    assert pod["terminationGracePeriodSeconds"] > 2 * config.drain_timeout / SECOND


def test_the_image_has_the_extras_of_every_sink_and_a_health_check_that_exists() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    (extras,) = re.findall(r"/src\[([a-z,]+)\]", text)
    assert set(extras.split(",")) == {"reader", "spark", "gcs", "bigquery", "avro"}
    assert "http://127.0.0.1:8080/healthz" in text
    assert unknown(" ".join(json.loads(text.rpartition("CMD ")[2]))) == []
