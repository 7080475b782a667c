from typing import Any

import orjson
import pytest

from connector.errors import SpoolError
from connector.spool.manifest import (
    GAP_VERSION,
    CutToken,
    Gap,
    Manifest,
    SegmentFile,
    SourceName,
    crc32c,
    load_document,
)
from tests.connector.builders import AT

SOURCE = SourceName(project="p", instance="i", database="d", change_stream="s")
MANIFEST = Manifest(
    epoch=3,
    spool_id="ab",
    source=SOURCE,
    watermark_low=AT - 10,
    watermark_high=AT,
    files=(
        SegmentFile(
            path="segments/3.arrow",
            rows=2,
            bytes=100,
            crc32c="00000001",
            first_commit_timestamp=AT - 9,
            last_commit_timestamp=AT,
        ),
    ),
    tables={"Singers": 2},
    schema_keys={"Singers": "00"},
    cut=(CutToken(token="", start_timestamp=AT), CutToken(token="a", start_timestamp=AT - 99)),
    writer="w",
    sealed_at=AT + 5,
)


def rewritten(**changed: Any) -> bytes:
    """The manifest with other fields, and a checksum that fits them."""
    node = orjson.loads(MANIFEST.to_json()) | changed
    del node["crc32c"]
    return orjson.dumps(node | {"crc32c": crc32c(orjson.dumps(node, option=orjson.OPT_SORT_KEYS))})


def test_a_manifest_is_read_as_it_was_written() -> None:
    assert Manifest.from_json(MANIFEST.to_json(), "3.json") == MANIFEST


def test_an_empty_epoch_has_a_manifest() -> None:
    empty = MANIFEST.model_copy(update={"files": (), "tables": {}, "final": True})
    again = Manifest.from_json(empty.to_json(), "3.json")
    assert (again, again.rows, again.size, again.final) == (empty, 0, 0, True)


def test_rows_and_bytes_are_those_of_its_files() -> None:
    assert (MANIFEST.rows, MANIFEST.size) == (2, 100)


def test_the_file_has_the_contracts_fields_and_timestamps_as_text() -> None:
    node = orjson.loads(MANIFEST.to_json())
    assert node["version"] == 1
    assert node["source"] == {"project": "p", "instance": "i", "database": "d", "change_stream": "s"}
    assert node["watermark_high"] == "2026-01-02T03:04:05.123456789Z"
    assert node["watermark_low"] == "2026-01-02T03:04:05.123456779Z"
    assert node["cut"][0] == {"token": "", "start_timestamp": "2026-01-02T03:04:05.123456789Z"}
    assert set(node["files"][0]) == {
        "path",
        "rows",
        "bytes",
        "crc32c",
        "first_commit_timestamp",
        "last_commit_timestamp",
    }
    assert {"epoch", "spool_id", "tables", "schema_keys"} <= set(node)


def test_a_manifest_with_any_bit_changed_is_refused_or_says_the_same() -> None:
    data = MANIFEST.to_json()
    refusals: list[str] = []
    for place in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[place] ^= 1 << bit
            try:
                manifest = Manifest.from_json(bytes(damaged), "/spool/3.json")
            except SpoolError as error:
                refusals.append(str(error))
            else:
                assert manifest == MANIFEST
                assert data[place : place + 1].isspace()
    assert len(refusals) > 7 * len(data)
    assert all("/spool/3.json" in refusal and "\n" not in refusal for refusal in refusals)


def test_a_manifest_cut_short_anywhere_is_refused() -> None:
    data = MANIFEST.to_json()
    for length in range(len(data)):
        with pytest.raises(SpoolError, match=r"corrupt file /spool/3\.json"):
            Manifest.from_json(data[:length], "/spool/3.json")


def test_a_manifest_with_zeros_at_its_end_is_refused() -> None:
    with pytest.raises(SpoolError, match="it is not JSON"):
        Manifest.from_json(MANIFEST.to_json() + b"\0", "3.json")


def test_a_newer_version_is_refused_with_one_line_that_says_what_to_do() -> None:
    with pytest.raises(SpoolError) as raised:
        Manifest.from_json(rewritten(version=6), "/spool/3.json")
    message = str(raised.value)
    assert message == (
        "/spool/3.json is of version 6, newer than this program's 5. Use the newer spanner-cdc that wrote it."
    )


def test_a_gap_is_read_as_it_was_written_and_refused_by_a_program_that_knows_of_none() -> None:
    gap = MANIFEST.model_copy(
        update={"version": GAP_VERSION, "files": (), "gap": Gap(reason="chosen", recorded_at=AT + 5)}
    )
    assert Manifest.from_json(gap.to_json(), "3.json") == gap
    with pytest.raises(SpoolError, match="is of version 2, newer than this program's 1"):
        load_document(gap.to_json(), "3.json", 1)


def test_a_manifest_without_a_gap_is_one_that_an_older_program_reads() -> None:
    assert load_document(MANIFEST.to_json(), "3.json", 1)["gap"] is None


def test_a_manifest_that_was_written_before_there_were_gaps_is_read() -> None:
    node = orjson.loads(MANIFEST.to_json())
    del node["crc32c"], node["gap"]
    before = orjson.dumps(node | {"crc32c": crc32c(orjson.dumps(node, option=orjson.OPT_SORT_KEYS))})
    assert Manifest.from_json(before, "3.json") == MANIFEST


def test_fields_that_this_version_does_not_know_are_passed_over() -> None:
    assert Manifest.from_json(rewritten(of_tomorrow=[1]), "3.json") == MANIFEST


def test_a_missing_field_is_an_error_although_the_checksum_matches() -> None:
    with pytest.raises(SpoolError, match="1 fields are not valid"):
        Manifest.from_json(rewritten(epoch=0), "3.json")
    with pytest.raises(SpoolError, match="1 fields are not valid"):
        Manifest.from_json(rewritten(watermark_high="yesterday"), "3.json")


@pytest.mark.parametrize("data", [b"", b"[]", b"1", b"{}", b'{"version":"1"}', b"\xff\xfe"])
def test_what_is_no_document_of_the_spool_is_refused(data: bytes) -> None:
    with pytest.raises(SpoolError, match=r"corrupt file x\.json"):
        load_document(data, "x.json", 1)


def test_a_source_is_written_as_its_four_names() -> None:
    assert str(SOURCE) == "p/i/d/s"


def test_the_checksum_is_crc32c() -> None:
    assert crc32c(b"123456789") == "e3069283"
