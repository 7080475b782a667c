"""The settings of a pipeline: which there are, what is refused, and where a position says to continue."""

import pytest

from connector.conduit.settings import SETTINGS, Schemas, configuration_of, configured, resumed, specification
from connector.config.sections import SourceConfig
from connector.core.position import Position
from connector.core.timestamps import SECOND, format_rfc3339, parse
from connector.errors import ConfigurationError

START = "2026-03-01T10:00:00Z"
GIVEN = {"project": "p", "instance": "in", "database": "d", "change_stream": "s", "start": START}


def test_a_setting_has_the_name_and_the_default_of_the_configurations_option() -> None:
    for name, about in SETTINGS.items():
        section, _, option = name.rpartition(".")
        fields = SourceConfig.model_fields
        assert (section if section else option) in fields or name.startswith("sdk.")
        if about.default and name != "workers":
            config = configuration_of({**GIVEN, name: about.default})
            assert config == configuration_of(GIVEN)


def test_settings_become_the_configuration() -> None:
    config = configuration_of(
        {**GIVEN, "tables.include": "Singers, sales.*", "skip_transaction_tags": "a,b,", "workers": "2", "endpoint": ""}
    )
    assert config.source.tables.include == ("Singers", "sales.*")
    assert config.source.skip_transaction_tags == ("a", "b")
    assert config.source.workers == 2
    assert config.source.endpoint is None
    assert config.envelope.format == "opencdc"


def test_every_fault_is_named_at_once_by_its_setting() -> None:
    with pytest.raises(ConfigurationError) as caught:
        configuration_of({"project": "p", "instance": "in", "start": "now", "heartbeat": "9h", "backfill": "true"})
    assert [line.partition(":")[0] for line in caught.value.errors] == [
        "backfill",
        "database",
        "change_stream",
        "start",
        "heartbeat",
    ]


@pytest.mark.parametrize("start", ["now", " now ", "-15m"])
def test_a_start_that_moves_is_refused_because_what_comes_before_the_first_record_could_be_skipped(start: str) -> None:
    with pytest.raises(ConfigurationError, match="is another timestamp at each start"):
        configuration_of({**GIVEN, "start": start})


@pytest.mark.parametrize("start", ["2026-03-01", "yesterday", "2026-13-01T00:00:00Z"])
def test_a_start_that_is_not_a_timestamp_is_answered_with_a_form_that_is_accepted(start: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        configuration_of({**GIVEN, "start": start})
    (line,) = caught.value.errors
    assert line == f"start: {start!r} is not a valid timestamp: write it like 2026-01-31T12:00:00Z"


@pytest.mark.parametrize(
    ("heartbeat", "seconds"),
    [
        ("1m30s", 90),
        ("90s", 90),
        ("1.5m", 90),
        ("0h1m30.5s", 90.5),
        ("90000ms", 90),
        ("2000000us", 2),
        ("2s500µs", 2.0005),
        ("+1.m", 60),
        (".5m", 30),
    ],
)
def test_a_heartbeat_is_a_duration_as_conduit_reads_it(heartbeat: str, seconds: float) -> None:
    assert configuration_of({**GIVEN, "heartbeat": heartbeat}).source.heartbeat == int(seconds * SECOND)


@pytest.mark.parametrize("heartbeat", ["6m", "5m1s", "0.05s", "1s1", "s", "1m 30s", "٣s", 5000 * "9" + "s"])
def test_a_heartbeat_that_spanner_does_not_take_is_refused(heartbeat: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^heartbeat: "):
        configuration_of({**GIVEN, "heartbeat": heartbeat})


KEYS, PAYLOADS = "sdk.schema.extract.key.enabled", "sdk.schema.extract.payload.enabled"


@pytest.mark.parametrize(
    ("given", "schemas"),
    [
        ({}, Schemas(keys=False, payloads=False)),
        ({KEYS: "false", PAYLOADS: ""}, Schemas()),
        ({KEYS: "true"}, Schemas(keys=True)),
        ({PAYLOADS: " True "}, Schemas(payloads=True)),
    ],
)
def test_schemas_are_switched_on_by_the_settings_of_conduits_sdk(given: dict[str, str], schemas: Schemas) -> None:
    assert configured({**GIVEN, **given}, offered=True) == (configuration_of(GIVEN), schemas)


def test_schemas_that_are_switched_on_are_refused_where_conduit_has_no_schema_service() -> None:
    assert configured({**GIVEN, KEYS: "false"}, offered=False)[1] == Schemas()
    with pytest.raises(ConfigurationError) as caught:
        configured({**GIVEN, KEYS: "true", PAYLOADS: "true"}, offered=False)
    assert caught.value.errors == [f"{name}: this Conduit has no schema service" for name in (KEYS, PAYLOADS)]


@pytest.mark.parametrize("name", ["sdk.schema.extract.key.enabled", "tls.enabled"])
def test_a_truth_value_that_is_not_one_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"^{name}: 'maybe' is neither true nor false$"):
        configuration_of({**GIVEN, name: "maybe"})


def test_without_a_position_reading_starts_at_the_setting() -> None:
    config = configuration_of(GIVEN)
    assert resumed(config, b"") == (config, None)


def test_a_position_says_where_to_continue() -> None:
    position = Position("p/in/d/s", parse("2026-03-02T00:00:00.123456Z"), "t", "1", 0)
    config, after = resumed(configuration_of(GIVEN), position.to_bytes())
    assert after == position
    assert config.source.start == format_rfc3339(position.commit_timestamp)


@pytest.mark.parametrize(
    ("position", "why"),
    [
        (b"{}", "position is damaged: delete the pipeline and create it again with a start"),
        (
            Position("p/in/d/t", parse(START), "t", "1", 0).to_bytes(),
            "belongs to change stream p/in/d/t, not p/in/d/s: delete",
        ),
    ],
)
def test_a_position_of_something_else_is_refused(position: bytes, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        resumed(configuration_of(GIVEN), position)


def test_the_specification_has_every_setting_and_says_which_are_required() -> None:
    found = specification().specification
    assert found.name == "spanner-cdc"
    assert found.version.startswith("v")
    required = {name for name, parameter in found.source_params.items() if parameter.validations}
    assert found.source_params.keys() == SETTINGS.keys()
    assert required == GIVEN.keys() - {"project", "instance"}  # Spanner Omni's are default
