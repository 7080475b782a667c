"""Spools that former programs wrote: one for each version of a manifest that there is (``spools/README.md``)."""

import re
import shutil
from pathlib import Path

import orjson
import pyarrow as pa
import pytest

from connector.core.epoch import SealedEpoch
from connector.core.partitions import CutPartition
from connector.core.records import partition_id
from connector.core.timestamps import SECOND
from connector.envelope.envelope import SCHEMA, EnvelopeBuilder, Source
from connector.errors import SpoolError
from connector.spool import manifest as manifests
from connector.spool.manifest import load_document
from connector.spool.reading import Spool
from connector.spool.writing import SpoolWriter, checkpoint
from tests.connector.builders import record
from tests.connector.spool.sealing import everything

FOLDER = Path(__file__).parent / "spools"
SOURCE = Source("project", "instance", "d", "Everything", "d")
IDS = {
    1: [0, 1, 2, 3, 4, 5, 0],
    2: [0, 1, 2, 3, 4, 5],
    3: [0, 1, 2, 3, 4, 5],
    4: [0, 1, 2, 3, 4, 5],
    5: [0, 1, 2, 3, 4, 5],
}
"""The keys of each spool's events, in order, by its version."""

CUTS = {
    1: {"token"},
    2: {"token"},
    3: {f"token{number}" for number in range(1, 66)},
    4: {"token"},
    5: {partition_id("token", "READ_Everything_one"), partition_id("token", "READ_Everything_two")},
}


def versions() -> set[int]:
    """Every version of a manifest that the code names."""
    return {value for name, value in vars(manifests).items() if re.fullmatch("([A-Z]+_)?VERSION", name)}


@pytest.fixture(name="spool")
def _spool(version: int, tmp_path: Path) -> Spool:
    return Spool.at(shutil.copytree(FOLDER / f"version-{version}", tmp_path / "spool"))


def ids(spool: Spool) -> list[int]:
    """The keys of the events of all epochs, in order."""
    every = spool.manifests(1, spool.latest())
    rows = pa.Table.from_batches(
        [batch for one in every for file in one.files for batch in spool.batches(file)], SCHEMA
    )
    return [int(orjson.loads(payload)["Id"]) for payload in rows["payload"].to_pylist()]


def test_there_is_a_spool_of_each_version_of_a_manifest() -> None:
    assert versions() == IDS.keys() == {int(path.name[8:]) for path in FOLDER.glob("version-*")}
    for version in IDS:
        spool = Spool.at(FOLDER / f"version-{version}")
        assert max(one.version for one in spool.manifests(1, spool.latest())) == version


@pytest.mark.parametrize("version", IDS)
def test_a_spool_of_a_former_version_is_read_whole(version: int, spool: Spool) -> None:
    assert ids(spool) == IDS[version]
    at = checkpoint(spool, spool.header())
    assert {one.token for one in at.cut} == CUTS[version]
    assert [schema.table for schema in at.schemas] == ["Singers"]
    assert [one.gap is not None for one in spool.manifests(1, at.epoch)].count(True) == (version == 2)


@pytest.mark.parametrize("version", IDS)
def test_a_spool_of_a_former_version_is_continued(version: int, spool: Spool) -> None:
    header = spool.header()
    at = checkpoint(spool, header)
    envelope = EnvelopeBuilder(SOURCE, stream_name=None, read_method="spanner-cdc")
    writer = SpoolWriter(spool, header, at, envelope, everything)
    one = record(commit_timestamp=at.watermark + SECOND)
    epoch = SealedEpoch(at.watermark, at.watermark + SECOND, (one,), one.size)
    cut = tuple(CutPartition(token, at.watermark) for token in sorted(CUTS[version]))
    sealed = writer.seal(epoch, cut, now=at.watermark + SECOND)
    again = Spool(spool.storage)
    assert checkpoint(again, again.header()).epoch == sealed.epoch == at.epoch + 1
    assert [one.epoch for one in again.manifests(1, sealed.epoch)] == list(range(1, sealed.epoch + 1))


@pytest.mark.parametrize("version", sorted(IDS)[1:])
def test_a_program_of_the_version_before_refuses_it_with_one_line(version: int, spool: Spool) -> None:
    newest = max(spool.manifests(1, spool.latest()), key=lambda one: one.version)
    path = f"manifests/{newest.epoch:020d}.json"
    with pytest.raises(SpoolError, match=f"is of version {version}, newer than this program's {version - 1}"):
        load_document(spool.storage.read(path).to_pybytes(), path, version - 1)
