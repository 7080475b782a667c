"""Compares what was delivered with what a workload committed."""

import json
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from connector.core.timestamps import parse
from connector.spool.manifest import Manifest
from connector.spool.reading import Spool
from emulator import CommittedMod, SampleDatabase, Table
from emulator.demo.reread import rereader
from emulator.demo.skipped import judge, missing_by_commit
from tests.integration.contract import Event

Mod = tuple[int, str, str, str, str]
"""Commit timestamp, table, mod type, keys, payload; the last two as canonical JSON."""


def canonical(node: object) -> str:
    return json.dumps(node, sort_keys=True)


def captured(mod: CommittedMod, value_capture_type: str) -> dict[str, object]:
    """Returns the columns beside the key that an event's payload has."""
    if mod.mod_type == "DELETE":
        return dict(mod.old_row) if "OLD" in value_capture_type else {}
    return dict(mod.row if "NEW_ROW" in value_capture_type else mod.new_values)


def in_spanners_encoding(mods: Iterable[CommittedMod], value_capture_type: str) -> Counter[Mod]:
    """Returns the mods that a spool must hold, in Spanner's encoding."""
    return Counter(
        (
            mod.commit_timestamp_ns,
            mod.table,
            mod.mod_type,
            canonical(mod.keys),
            canonical({**mod.keys, **captured(mod, value_capture_type)}),
        )
        for mod in mods
    )


def in_unified_types(mods: Iterable[CommittedMod], sample: SampleDatabase, value_capture_type: str) -> Counter[Mod]:
    """Returns the mods that `tail` must print, in Datastream's unified types."""
    tables = {table.name: table for table in sample.tables}
    return Counter(
        (
            mod.commit_timestamp_ns,
            mod.table,
            mod.mod_type,
            canonical(_unified(mod.keys, tables[mod.table])),
            canonical(_unified({**mod.keys, **captured(mod, value_capture_type)}, tables[mod.table])),
        )
        for mod in mods
    )


def _unified(row: Mapping[str, object], table: Table) -> dict[str, object]:
    columns = {column.name: column for column in table.columns}

    def one(kind: str, value: object) -> object:
        if value is None:
            return None
        return int(str(value)) if kind == "INT64" else json.loads(str(value)) if kind == "JSON" else value

    return {
        name: [one(columns[name].type, item) for item in value]
        if isinstance(value, list)
        else one(columns[name].type, value)
        for name, value in row.items()
    }


def of_events(events: Iterable[Event]) -> Counter[Mod]:
    """Returns the mods of events."""
    return Counter(
        (
            event["sort_keys"][1],
            event["object"],
            event["source_metadata"]["mod_type"],
            canonical({name: event["payload"][name] for name in event["source_metadata"]["primary_keys"]}),
            canonical(event["payload"]),
        )
        for event in events
    )


def rows(spool: str | Path, manifest: Manifest) -> Iterator[Event]:
    """Returns the rows of an epoch, in order."""
    opened = Spool.at(spool)
    for file in manifest.files:
        for batch in opened.batches(file):
            yield from batch.drop_columns(["read_timestamp", "source_timestamp"]).to_pylist()


def of_rows(found: Iterable[Event]) -> Counter[Mod]:
    """Returns the mods of a spool's rows."""
    mods: Counter[Mod] = Counter()
    for row in found:
        metadata, payload = row["source_metadata"], json.loads(row["payload"])
        keys = {name: payload[name] for name in metadata["primary_keys"]}
        at = parse(metadata["commit_timestamp"])
        mods[at, row["object"], metadata["mod_type"], canonical(keys), canonical(payload)] += 1
    return mods


def assert_sound(spool: str | Path, kept: list[Manifest], *, first: int = 1) -> list[Event]:
    """Fails unless epochs are numbered without gaps, contiguous, in order and complete; returns all their rows."""
    assert [manifest.epoch for manifest in kept] == list(range(first, first + len(kept)))
    out: list[Event] = []
    transactions: dict[str, set[str]] = {}
    expected: dict[str, int] = {}
    for before, manifest in zip([None, *kept], kept, strict=False):
        if before is not None:
            assert manifest.watermark_low == before.watermark_high
        assert manifest.watermark_low < manifest.watermark_high
        assert Spool.at(spool).cut(manifest)
        found = list(rows(spool, manifest))
        assert len(found) == manifest.rows == sum(manifest.tables.values())
        here: set[str] = set()
        for row in found:
            metadata = row["source_metadata"]
            at, transaction = parse(metadata["commit_timestamp"]), metadata["server_transaction_id"]
            assert manifest.watermark_low < at <= manifest.watermark_high
            assert transaction in here or transaction not in transactions, "a transaction was split"
            here.add(transaction)
            transactions.setdefault(transaction, set()).add(metadata["record_sequence"])
            expected[transaction] = metadata["number_of_records_in_transaction"]
        out += found
    assert {transaction: len(found) for transaction, found in transactions.items()} == expected
    order = [_order(row) for row in out]
    assert order == sorted(set(order)), "epochs, or rows of an epoch, are out of order"
    return out


def _order(row: Event) -> tuple[int, str, int, int]:
    metadata = row["source_metadata"]
    at, sequence = parse(metadata["commit_timestamp"]), int(metadata["record_sequence"])
    return at, metadata["server_transaction_id"], sequence, metadata["mod_index"]


def assert_delivered(
    spool: str | Path,
    mods: Sequence[CommittedMod],
    *,
    value_capture_type: str = "NEW_ROW",
    official: SampleDatabase | None = None,
) -> list[Manifest]:
    """Fails unless the epochs of a spool hold every committed mod once, in order; returns their manifests.

    On the `official` emulator, named by its database, a live query may have skipped a transaction.
    """
    opened = Spool.at(spool)
    kept = list(opened.manifests(1, opened.latest()))
    delivered = of_rows(assert_sound(spool, kept))
    committed = in_spanners_encoding(mods, value_capture_type)
    if official is not None:
        left = returned(official, mods, (mod[0] for mod in delivered.elements()), errors=_errors_beside(spool))
        committed = in_spanners_encoding(left, value_capture_type)
    assert delivered == committed, differences(committed, delivered)
    return kept


MOST_SKIPPED = 1
"""A test commits some hundred transactions, of which the emulator skips 0.001 at most."""


def _errors_beside(spool: str | Path) -> list[str]:
    """Returns the errors in readers' logs, which are beside a spool on disk."""
    logs = Path(spool).parent.glob("*.log")
    return [line for log in logs for line in log.read_text(errors="replace").splitlines() if " ERROR " in line]


def returned(
    sample: SampleDatabase, mods: Sequence[CommittedMod], delivered: Iterable[int], *, errors: Sequence[str] = ()
) -> list[CommittedMod]:
    """Returns the committed mods without those that the official emulator's live queries have skipped.

    `delivered` has each delivered mod's commit timestamp. Lost mods stay, and a line on stdout says why they are lost;
    if the reader logged `errors`, all missing mods are lost.
    """
    reread = rereader(sample.host, sample.path, sample.change_stream, sample.dialect)
    judged = judge(missing_by_commit(mods, delivered), mods, reread, errors=errors, most=MOST_SKIPPED)
    for reason in judged.reasons:
        sys.stdout.write(f"lost: {reason}\n")
    for skip in judged.skipped:
        warnings.warn(f"skipped by the emulator: the commit at {skip}", UserWarning, stacklevel=2)
    skipped = {skip.commit_timestamp for skip in judged.skipped}
    return [mod for mod in mods if mod.commit_timestamp_ns not in skipped]


@contextmanager
def unless_skipped(
    sample: SampleDatabase, committed: Callable[[], Sequence[CommittedMod]], spool: Path
) -> Iterator[None]:
    """Skips a test that fails because the official emulator has skipped a transaction; other failures are raised.

    For tests that cannot be compared without that transaction; `spool` still has all that was delivered.
    """
    try:
        yield
    except AssertionError:
        mods, opened = committed(), Spool.at(spool)
        kept = opened.manifests(opened.floor(), opened.latest())
        delivered = Counter(
            mod[0] for mod in of_rows(row for manifest in kept for row in rows(spool, manifest)).elements()
        )
        left = returned(sample, mods, delivered.elements(), errors=_errors_beside(spool))
        if len(left) < len(mods) and not missing_by_commit(left, delivered.elements()):
            pytest.skip("the emulator has skipped a transaction: run the test again")
        raise


def differences(committed: Counter[Mod], delivered: Counter[Mod]) -> str:
    """Describes the first few mods that are missing or additional."""
    missing, extra = committed - delivered, delivered - committed
    return (
        f"{missing.total()} of {committed.total()} missing, {extra.total()} too many;"
        f" missing {sorted(missing)[:3]}; too many {sorted(extra)[:3]}"
    )
