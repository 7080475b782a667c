"""Reading a spool: new epochs, pruned ones, damaged files."""

from dataclasses import replace

import orjson
import pytest

from connector.core.masking.rules import ColumnRules, HashRule
from connector.errors import SpoolError, SpoolMismatchError
from connector.spool import consumers
from connector.spool.reading import COLUMNS_VERSION, Spool, manifest_path, schema_path
from connector.spool.storage.store import contents
from connector.spool.writing import initialize
from tests.connector.builders import AT
from tests.connector.spool.sealing import NAME, NOW, SINGERS, sealed, writer_of


@pytest.fixture
def spool(spool_path: str) -> Spool:
    spool = Spool.at(spool_path)
    initialize(spool, NAME, AT, "now", [SINGERS])
    return spool


def test_a_reader_that_waits_sees_epochs_as_they_are_sealed(spool: Spool) -> None:
    writer, reader = writer_of(spool), Spool(spool.storage)
    assert reader.latest() == 0
    sealed(writer)
    assert reader.latest() == 1
    sealed(writer, 2)
    assert reader.latest() == 3


def test_a_reader_that_slept_while_its_newest_epoch_was_pruned_finds_the_newest(spool: Spool) -> None:
    writer, reader = writer_of(spool), Spool(spool.storage)
    sealed(writer)
    assert reader.latest() == 1
    sealed(writer, 3)
    consumers.record(spool, "c", 4, now=NOW)
    writer.retention.prune(now=NOW, grace=0)
    assert reader.latest() == 4


def test_the_error_for_a_pruned_epoch_names_the_epochs_that_are_kept(spool: Spool) -> None:
    writer = writer_of(spool)
    sealed(writer, 3)
    consumers.record(spool, "c", 2, now=NOW)
    writer.retention.prune(now=NOW, grace=0)
    with pytest.raises(SpoolError, match=r"epoch 2 is not in the spool .* which keeps 3 to 3\. It was pruned"):
        list(spool.manifests(2, 3))


def test_a_manifest_under_another_number_is_corrupt(spool: Spool) -> None:
    sealed(writer_of(spool))
    spool.storage.create(manifest_path(2), spool.storage.read(manifest_path(1)).to_pybytes())
    with pytest.raises(SpoolError, match="it is the manifest of epoch 1"):
        spool.manifest(2)


@pytest.mark.parametrize("damage", ["flip", "cut", "grow", "delete"])
def test_a_damaged_segment_is_refused(spool: Spool, damage: str) -> None:
    sealed(writer_of(spool))
    (file,) = spool.manifest(1).files
    data = spool.storage.read(file.path).to_pybytes()
    match damage:
        case "flip":
            spool.storage.replace(file.path, data[:100] + bytes([data[100] ^ 1]) + data[101:])
        case "cut":
            spool.storage.replace(file.path, data[:-1])
        case "grow":
            spool.storage.replace(file.path, data + b"\0")
        case _:
            spool.storage.delete(file.path)
    with pytest.raises(SpoolError, match=r"corrupt file .*arrow: it"):
        list(spool.batches(file))


def test_a_schema_that_is_missing_or_damaged_is_an_error(spool: Spool) -> None:
    with pytest.raises(SpoolError, match="it is missing"):
        spool.schema("00")
    spool.storage.replace(schema_path("00"), b"{}")
    with pytest.raises(SpoolError, match="corrupt file"):
        spool.schema("00")


def test_a_schema_of_a_newer_version_is_refused_with_one_line(spool: Spool) -> None:
    node = orjson.loads(SINGERS.to_json()) | {"version": 2}
    spool.storage.replace(schema_path("00"), orjson.dumps(node))
    with pytest.raises(SpoolError, match="is of version 2, newer than this program's 1"):
        spool.schema("00")


def test_a_floor_that_names_no_epoch_is_corrupt(spool: Spool) -> None:
    spool.storage.replace("floor.json", b'{"version":1,"first":"x"}')
    with pytest.raises(SpoolError, match="it has no valid field first"):
        spool.floor()


def test_a_spool_has_the_path_that_it_was_opened_with(spool: Spool, spool_path: str) -> None:
    assert spool.path == spool_path


def test_a_spool_is_read_with_the_rules_for_columns_that_it_is_written_with(spool: Spool) -> None:
    rules = ColumnRules(("A.b",), (HashRule("A.c", "a salt of the tests"),))
    initialize(
        spool, NAME, AT, "now", [SINGERS], columns=rules.fingerprint, before=contents(spool.storage, "spool.json")
    )
    assert spool.check_source(NAME, rules.fingerprint).version == COLUMNS_VERSION
    assert b"a salt" not in spool.storage.read("spool.json").to_pybytes()
    others = {
        "exclude no longer has A.b, hash no longer has A.c": None,
        "the salt of A.c is another": replace(rules, hash=(HashRule("A.c", "another salt of the tests"),)).fingerprint,
        "exclude has A.d now": replace(rules, exclude=("A.b", "A.d")).fingerprint,
    }
    for change, other in others.items():
        with pytest.raises(SpoolMismatchError, match=f"is written with other source.columns: {change}. Put them back"):
            spool.check_source(NAME, other)


def test_a_spool_from_before_rules_for_columns_is_refused_with_some(spool: Spool) -> None:
    with pytest.raises(SpoolMismatchError, match=r"exclude has A\.b now"):
        spool.check_source(NAME, ColumnRules(("A.b",)).fingerprint)
