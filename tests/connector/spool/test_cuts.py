"""Cuts of many partitions: in a file apart, with what came and went since in the manifests."""

from random import Random

import orjson
import pytest

from connector.core.partitions import CutPartition
from connector.core.records import partition_id
from connector.errors import SpoolError
from connector.spool import consumers
from connector.spool.cuts import INLINE
from connector.spool.manifest import CUT_VERSION, FUNCTIONS_VERSION, VERSION, CutToken, Manifest, load_document
from connector.spool.reading import Spool, manifest_path
from connector.spool.writing import SpoolWriter, checkpoint, initialize
from tests.connector.builders import AT
from tests.connector.spool.sealing import NAME, NOW, SINGERS, epoch_of, writer_of

Cut = tuple[CutPartition, ...]


@pytest.fixture
def spool(spool_path: str) -> Spool:
    spool = Spool.at(spool_path)
    initialize(spool, NAME, AT, "now", [SINGERS])
    return spool


def cut_of(*numbers: int) -> Cut:
    return tuple(CutPartition(f"{number:0100d}", AT + number) for number in numbers)


def seal(writer: SpoolWriter, cut: Cut) -> Manifest:
    return writer.seal(epoch_of(writer.epoch + 1), cut, now=NOW)


def read(spool: Spool, epoch: int) -> Cut:
    return tuple(CutPartition(at.id, at.start_timestamp) for at in spool.cut(spool.manifest(epoch)))


def test_a_small_cut_stands_in_the_manifest_as_ever(spool: Spool) -> None:
    cut = cut_of(*range(INLINE))
    manifest = seal(writer_of(spool), cut)
    assert manifest.version == VERSION
    assert len(manifest.cut) == INLINE
    assert "cut_file" not in orjson.loads(spool.storage.read(manifest_path(1)).to_pybytes())
    assert read(spool, 1) == cut
    assert spool.storage.list("cuts") == []


def test_a_large_cut_has_a_file_and_manifests_hold_what_differs_from_it(spool: Spool) -> None:
    writer = writer_of(spool)
    cuts = [cut_of(*range(number, number + 200)) for number in (0, 1, 3, 3)]
    manifests = [seal(writer, cut) for cut in cuts]
    assert [read(spool, epoch) for epoch in (1, 2, 3, 4)] == cuts
    assert {manifest.version for manifest in manifests} == {CUT_VERSION}
    assert len(spool.storage.list("cuts")) == 1
    counts = [(len(one.cut_file.added), len(one.cut_file.removed)) for one in manifests if one.cut_file]
    assert counts == [(0, 0), (1, 1), (3, 3), (3, 3)]
    assert spool.storage.read(manifest_path(2)).size < 3000 < spool.storage.read(f"{manifests[0].cut_file.path}").size  # type: ignore[union-attr]
    assert checkpoint(spool, spool.header()).cut == cuts[3]


def test_a_large_cut_is_refused_by_the_program_of_before_with_one_line(spool: Spool) -> None:
    seal(writer_of(spool), cut_of(*range(200)))
    data = spool.storage.read(manifest_path(1)).to_pybytes()
    with pytest.raises(SpoolError, match="is of version 3, newer than this program's 2"):
        load_document(data, "1.json", 2)


def test_a_partition_that_starts_at_another_time_is_another(spool: Spool) -> None:
    writer = writer_of(spool)
    before = cut_of(*range(200))
    after = (*before[1:], CutPartition(before[0].token, AT + 999))
    seal(writer, before)
    seal(writer, after)
    assert read(spool, 2) == tuple(sorted(after, key=lambda at: (at.start_timestamp, at.token)))


@pytest.mark.long(but=1)
def test_every_cut_is_read_as_it_was_sealed_whatever_came_and_went_over_restarts_and_pruning(spool: Spool) -> None:
    random = Random(7)
    consumers.record(spool, "c", 0, now=NOW)
    cuts: dict[int, Cut] = {}
    writer = writer_of(spool)
    for number in range(60):
        size = random.choice((3, INLINE, INLINE + 1, 150, 151, 152))
        cuts[number + 1] = cut_of(*sorted(random.sample(range(160), size)))
        seal(writer, cuts[number + 1])
        if random.random() < 0.1:
            writer = writer_of(spool)
        if random.random() < 0.2:
            consumers.record(spool, "c", random.randint(spool.floor() - 1, number + 1), now=NOW)
            writer.retention.prune(now=NOW, grace=0)
        kept = range(spool.floor(), number + 2)
        assert [read(spool, epoch) for epoch in kept] == [cuts[epoch] for epoch in kept]
        needed = {one.cut_file.path for one in spool.manifests(kept[0], kept[-1]) if one.cut_file}
        assert needed <= {f"cuts/{name}" for name in spool.storage.list("cuts")}
    seal(writer_of(spool), cut_of(1))
    needed = {one.cut_file.path for one in spool.manifests(spool.floor(), 61) if one.cut_file}
    assert needed == {f"cuts/{name}" for name in spool.storage.list("cuts")}
    assert writer_of(spool).retention.bytes > 0


def test_what_manifests_write_of_differences_is_not_more_than_the_files_again(spool: Spool) -> None:
    writer = writer_of(spool)
    for number in range(100):
        seal(writer, cut_of(*range(number * 3, number * 3 + 300)))
    names = spool.storage.list("cuts")
    files = sum(spool.storage.read(f"cuts/{name}").size for name in names)
    manifests = sum(spool.storage.read(manifest_path(epoch)).size for epoch in range(1, 101))
    assert 2 < len(names) < 20
    assert manifests < files * 1.2 + 100 * 1000
    assert files + manifests < 100 * spool.storage.read(f"cuts/{names[0]}").size / 5


def test_the_file_of_a_cut_is_kept_as_long_as_an_epoch_refers_to_it_and_counts_once(spool: Spool) -> None:
    writer = writer_of(spool)
    for _ in range(4):
        seal(writer, cut_of(*range(200)))
    size = spool.storage.read(f"cuts/{spool.storage.list('cuts')[0]}").size
    assert writer.retention.bytes == sum(one.held for one in spool.summaries(1, 4)) + size
    consumers.record(spool, "c", 3, now=NOW)
    assert writer.retention.prune(now=NOW, grace=0) == 3
    assert read(spool, 4) == cut_of(*range(200))
    assert (
        writer.retention.bytes
        == writer_of(spool).retention.bytes
        == sum(one.held for one in spool.summaries(4, 4)) + size
    )
    seal(writer, cut_of(1))
    consumers.record(spool, "c", 4, now=NOW)
    assert writer.retention.prune(now=NOW, grace=0) == 1
    assert spool.storage.list("cuts") == []
    assert writer.retention.bytes == sum(one.held for one in spool.summaries(5, 5))


@pytest.mark.parametrize("damage", ["flip", "cut", "delete", "other"])
def test_a_damaged_file_of_a_cut_is_refused_with_one_line(spool: Spool, damage: str) -> None:
    writer = writer_of(spool)
    manifest = seal(writer, cut_of(*range(200)))
    assert manifest.cut_file is not None
    path, data = manifest.cut_file.path, spool.storage.read(manifest.cut_file.path).to_pybytes()
    match damage:
        case "flip":
            spool.storage.replace(path, data[:100] + bytes([data[100] ^ 1]) + data[101:])
        case "cut":
            spool.storage.replace(path, data[:-1])
        case "delete":
            spool.storage.delete(path)
        case _:
            spool.storage.replace(path, b'{"version":1}')
    with pytest.raises(SpoolError, match=r"corrupt file .*cuts/.*json: it"):
        checkpoint(spool, spool.header())


def test_partitions_of_several_functions_keep_them_in_a_manifest_that_older_programs_refuse(spool: Spool) -> None:
    cut = tuple(CutPartition(partition_id("a", function), AT) for function in ("F", "G"))
    manifest = seal(writer_of(spool), cut)
    assert manifest.version == FUNCTIONS_VERSION
    assert manifest.cut == tuple(CutToken(token="a", start_timestamp=AT, function=function) for function in ("F", "G"))
    assert read(spool, 1) == checkpoint(spool, spool.header()).cut == cut


def test_a_large_cut_of_several_functions_is_read_as_it_was_written(spool: Spool) -> None:
    writer = writer_of(spool)
    cuts = [
        tuple(
            CutPartition(partition_id(f"{number:0100d}", function), AT + number)
            for number in range(first, first + 100)
            for function in ("F", "G")
        )
        for first in (0, 1, 3)
    ]
    manifests = [seal(writer, cut) for cut in cuts]
    assert [set(read(spool, epoch)) for epoch in (1, 2, 3)] == [set(cut) for cut in cuts]
    assert {manifest.version for manifest in manifests} == {FUNCTIONS_VERSION}
    assert [len(one.cut_file.removed) for one in manifests if one.cut_file] == [0, 2, 6]
    assert load_document(spool.storage.read(f"{manifests[0].cut_file.path}").to_pybytes(), "", 9)["version"] == 5  # type: ignore[union-attr]
