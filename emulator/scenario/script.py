"""Writes drawn transactions into the partitions that own their rows, as data change records.

Every transaction's mods go to the partitions that own their rows at its commit timestamp. Within a partition,
consecutive mods of one table, mod type and columns form a record, as in Spanner, which may split them anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import groupby
from random import Random

from emulator.scenario.capture import reported_columns, reported_mod
from emulator.scenario.history import Change, Event, PartitionMode, ReportedColumn, ReportedMod
from emulator.scenario.row_places import RowPlaces
from emulator.scenario.timelines import Notice, Timelines
from emulator.scenario.transactions import DrawnTransaction
from emulator.workload.journal import ModType, PlannedMod
from emulator.workload.tables import Dialect


@dataclass(slots=True)
class _Draft:
    """A data change record of a transaction that is not yet complete."""

    token: str
    table: str
    mod_type: ModType
    columns: tuple[ReportedColumn, ...]
    mods: list[ReportedMod]
    planned: list[PlannedMod]


class Script:
    """Writes transactions and notices into the partitions of the timelines, with their record sequences."""

    def __init__(
        self, random: Random, dialect: Dialect, mode: PartitionMode, value_capture_type: str, lines: Timelines
    ) -> None:
        self._random = random
        self._mode = mode
        self._value_capture_type = value_capture_type
        self._lines = lines
        self._places = RowPlaces(random, lines)
        self._columns = cache(partial(reported_columns, dialect=dialect))

    def write(self, done: Sequence[DrawnTransaction]) -> dict[str, list[PlannedMod]]:
        """Writes transactions and notices in the order of their timestamps; those of one timestamp in the order given.

        Returns each transaction's mods by its id, in the order of their record sequences.
        """
        ordered: dict[str, list[PlannedMod]] = {}
        stamped: list[tuple[int, DrawnTransaction | Notice]] = [(one.commit_timestamp, one) for one in done]
        stamped += [(notice.record.timestamp, notice) for notice in self._lines.notices]
        stamped.sort(key=lambda entry: (entry[0], entry[1].rank if isinstance(entry[1], Notice) else 0))
        for _, group in groupby(stamped, key=lambda entry: entry[0]):
            self._write_timestamp((entry for _, entry in group), ordered)
        return ordered

    def _write_timestamp(
        self, entries: Iterable[DrawnTransaction | Notice], ordered: dict[str, list[PlannedMod]]
    ) -> None:
        sequences = self._sequences()
        for entry in entries:
            if isinstance(entry, Notice):
                record = entry.record
                self._append(
                    entry.token, record if record.record_sequence else replace(record, record_sequence=next(sequences))
                )
                continue
            moves = self._places.moves(entry)
            drafts = self._drafts(entry)
            ordered[entry.id] = [mod for draft in drafts for mod in draft.planned]
            # In the MUTABLE_KEY_RANGE mode record sequences count within a timestamp, otherwise within a transaction.
            numbers = sequences if self._mode == "MUTABLE_KEY_RANGE" else self._sequences()
            for token, event in moves.before(entry.commit_timestamp):
                self._append(token, replace(event, record_sequence=next(numbers)))
            for token, change in _changes(entry, drafts, numbers, self._value_capture_type):
                self._append(token, change)
            for token, event in moves.after(entry.commit_timestamp):
                self._append(token, replace(event, record_sequence=next(numbers)))
        self._places.settle()

    def _append(self, token: str, event: Event) -> None:
        self._lines.partitions[token].events.append(event)

    def _sequences(self) -> Iterator[str]:
        """Yields record sequences, increasing with gaps; in the IMMUTABLE_KEY_RANGE mode some have no leading zeros."""
        number = self._random.choice((0, 0, 0, 7, 95))
        width = 1 if self._mode == "IMMUTABLE_KEY_RANGE" and self._random.random() < 0.2 else 8
        while True:
            yield f"{number:0{width}d}"
            number += self._random.choice((1, 1, 2, 3))

    def _drafts(self, transaction: DrawnTransaction) -> list[_Draft]:
        """Distribute a transaction's mods over the partitions, and group consecutive ones into records."""
        drafts: list[_Draft] = []
        open_drafts: dict[str, _Draft] = {}
        for table, mod in transaction.mods:
            reported, names = reported_mod(mod, self._value_capture_type)
            columns = self._columns(table, names=names)
            token = self._places.owner(table, mod.keys, transaction.commit_timestamp)
            draft = open_drafts.get(token)
            same = draft and (draft.table, draft.mod_type, draft.columns) == (mod.table, mod.mod_type, columns)
            if draft is not None and same and self._random.random() < 0.9:
                draft.mods.append(reported)
                draft.planned.append(mod)
                continue
            open_drafts[token] = _Draft(token, mod.table, mod.mod_type, columns, [reported], [mod])
            drafts.append(open_drafts[token])
        return drafts


def _changes(
    transaction: DrawnTransaction, drafts: Sequence[_Draft], sequences: Iterator[str], value_capture_type: str
) -> Iterator[tuple[str, Change]]:
    """Yields a transaction's records with their partition tokens, in the order of their record sequences."""
    last = {draft.token: number for number, draft in enumerate(drafts)}
    for number, draft in enumerate(drafts):
        yield (
            draft.token,
            Change(
                commit_timestamp=transaction.commit_timestamp,
                record_sequence=next(sequences),
                server_transaction_id=transaction.id,
                is_last_record_in_transaction_in_partition=last[draft.token] == number,
                table=draft.table,
                columns=draft.columns,
                mods=tuple(draft.mods),
                mod_type=draft.mod_type,
                value_capture_type=value_capture_type,
                number_of_records_in_transaction=len(drafts),
                number_of_partitions_in_transaction=len(last),
                transaction_tag=transaction.tag,
                is_system_transaction=transaction.is_system,
            ),
        )
