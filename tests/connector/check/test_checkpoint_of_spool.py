"""Spark's checkpoint of another spool: `check` and the start of `run` refuse it, in one line that says what to do."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import NoReturn

import pytest

from connector.check import findings
from connector.check.findings import check_sink, findings_of
from connector.config import Config, validated
from connector.config.spark_checkpoint import check_checkpoint, sink_checkpoint
from connector.core.timestamps import SECOND
from connector.errors import ConfigurationError, UnreachableError
from spark_sink.run import delivery_of
from spark_sink.sources.changes.offsets import Offset
from tests.spark_sink.spools import SpoolMaker

SOURCE = {"project": "project", "instance": "instance", "database": "d", "change_stream": "Everything"}
SINKS = {
    "files": {"path": "./events"},
    "bigquery": {"project": "my-project", "dataset": "d"},
    "tables": {"format": "parquet", "mode": "append", "path": "./lake"},
}


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    def unreachable(*_: object, **__: object) -> NoReturn:
        raise UnreachableError("Spanner cannot be reached")

    monkeypatch.setattr(findings, "opened", unreachable)  # an address where nobody listens is tried for 20 seconds
    return configured(tmp_path)


def configured(folder: Path, kind: str = "files", **options: object) -> Config:
    sink = {"type": kind, **SINKS[kind], **options}
    sections = {"spool": {"path": str(folder / "spool")}, "spark": {"checkpoint": str(folder / "checkpoint")}}
    return validated({"source": SOURCE, "sink": sink, "status": {"port": 0}, **sections})


def logged(config: Config, batch: int, offset: Offset) -> None:
    """Writes an offset as Spark does."""
    folder = Path(sink_checkpoint(config), "offsets")
    folder.mkdir(parents=True, exist_ok=True)
    metadata = {"batchWatermarkMs": 0, "batchTimestampMs": 1, "conf": {}, "sourceMetadataInfo": {}}
    Path(folder, str(batch)).write_text(f"v1\n{json.dumps(metadata)}\n{json.dumps(offset.to_json())}")
    Path(folder, f".{batch}.crc").write_bytes(b"crc")


def passed(maker: SpoolMaker, epoch: int) -> Offset:
    return Offset(epoch, maker.spool_id, '{"some": "option"}', maker.spool.manifest(epoch).identity)


def refused(config: Config) -> str:
    """The one line, which is the same wherever it is found."""
    with pytest.raises(ConfigurationError) as caught:
        check_checkpoint(config)
    line = str(caught.value)
    with pytest.raises(ConfigurationError) as started:
        asyncio.run(check_sink(config))
    assert str(started.value) == line
    checked = asyncio.run(findings_of(config))
    assert line in checked.errors
    return line


@pytest.mark.parametrize("kind", ["files", "bigquery", "tables"])  # Spanner's delivery connects when it is made
@pytest.mark.parametrize("name", ["", "second"])
def test_the_checkpoint_is_looked_for_where_the_sink_keeps_it(tmp_path: Path, kind: str, name: str) -> None:
    config = configured(tmp_path, kind, **({"name": name} if name else {}))
    assert sink_checkpoint(config) == delivery_of(config).checkpoint


def test_a_checkpoint_of_its_own_spool_is_accepted_and_so_is_none(config: Config) -> None:
    check_checkpoint(config)
    maker = SpoolMaker(config.spool.path)
    check_checkpoint(config)
    maker.fill(12)
    logged(config, 9, Offset(11, "another spool", at=maker.spool.manifest(11).identity))
    logged(config, 10, passed(maker, 12))
    check_checkpoint(config)


def test_a_checkpoint_without_an_offset_of_a_spool_is_accepted(config: Config) -> None:
    logged(config, 0, Offset(0))
    check_checkpoint(config)
    Path(sink_checkpoint(config), "offsets/1").write_text("v1\n{}\n-")
    check_checkpoint(config)
    Path(sink_checkpoint(config), "offsets/2").write_text("v1\nnot")
    check_checkpoint(config)


def test_a_checkpoint_of_another_spool_is_refused_before_anything_starts(config: Config, tmp_path: Path) -> None:
    other, maker = SpoolMaker(tmp_path / "other"), SpoolMaker(config.spool.path)
    other.fill(2)
    maker.fill(3)
    logged(config, 0, passed(other, 2))
    assert refused(config) == (
        f"spark.checkpoint: {tmp_path}/checkpoint is of spool {other.spool_id}, up to its epoch 2, but at"
        f" {tmp_path}/spool is spool {maker.spool_id}. Put that spool back, or remove the checkpoint: the sink"
        " then delivers all that this spool has not recorded as delivered"
    )


def test_a_checkpoint_whose_spool_was_removed_is_refused(config: Config) -> None:
    maker = SpoolMaker(config.spool.path)
    maker.fill(1)
    logged(config, 0, passed(maker, 1))
    shutil.rmtree(config.spool.path)
    assert f"but there is no spool at {config.spool.path}. Put that spool back" in refused(config)
    new = SpoolMaker(config.spool.path)
    assert f"but at {config.spool.path} is spool {new.spool_id}. Put that spool back" in refused(config)


def test_a_spool_that_was_put_back_from_an_older_copy_is_an_error_of_check(config: Config, tmp_path: Path) -> None:
    maker = SpoolMaker(config.spool.path)
    shutil.copytree(config.spool.path, tmp_path / "empty")
    maker.fill(1)
    shutil.copytree(config.spool.path, tmp_path / "copy")
    maker.fill(1)
    logged(config, 0, passed(maker, 2))
    assert not errors_about_checkpoint(config)
    for copy in ("empty", "copy"):
        shutil.rmtree(config.spool.path)
        shutil.copytree(tmp_path / copy, config.spool.path)
        check_checkpoint(config)  # is left to the query by run
        (line,) = errors_about_checkpoint(config)
        assert "it was put back from an older copy" in line
    (line,) = errors_about_checkpoint(config)
    assert f"is at epoch 2, but the spool at {config.spool.path} ends with epoch 1: it was put back" in line
    SpoolMaker(config.spool.path, reopen=True).fill(1, step=2 * SECOND)
    (line,) = errors_about_checkpoint(config)
    assert f"but the spool at {config.spool.path} has another epoch 2: it was put back" in line


def errors_about_checkpoint(config: Config) -> list[str]:
    found = asyncio.run(findings_of(config))
    return [error for error in found.errors if error.startswith("spark.checkpoint:")]
