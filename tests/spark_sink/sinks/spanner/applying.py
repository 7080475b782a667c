"""A spool's epochs, applied to a database without Spark."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from connector.config.address import DatabaseAddress
from emulator import SampleDatabase
from spark_sink.sinks.shared.dead_letters import DeadLetters
from spark_sink.sinks.spanner.config import Applying, SpannerConfig
from spark_sink.sinks.spanner.creation import Creation, prepare
from spark_sink.sinks.spanner.source import EpochsToApply, SpannerPlace, applied
from spark_sink.sinks.spanner.writing.writer import WrittenUnits
from tests.spark_sink.spools import SpoolMaker

ARTISTS = {
    "googlesql": [
        (
            "CREATE TABLE Artists (Id INT64 NOT NULL, Name STRING(MAX) NOT NULL, Age INT64,"
            " Upper STRING(MAX) AS (UPPER(Name)) STORED) PRIMARY KEY (Id)"
        ),
        (
            "CREATE TABLE Songs (Id INT64 NOT NULL, Song INT64 NOT NULL, Title STRING(MAX)) PRIMARY KEY (Id, Song),"
            " INTERLEAVE IN PARENT Artists ON DELETE NO ACTION"
        ),
        "CREATE TABLE Names (Id INT64 NOT NULL, Name STRING(MAX)) PRIMARY KEY (Id)",
        "CREATE UNIQUE INDEX NamesByName ON Names (Name)",
    ],
    "postgresql": [
        (
            'CREATE TABLE "Artists" ("Id" bigint NOT NULL PRIMARY KEY, "Name" varchar NOT NULL, "Age" bigint,'
            ' "Upper" varchar GENERATED ALWAYS AS (UPPER("Name")) STORED)'
        ),
        (
            'CREATE TABLE "Songs" ("Id" bigint NOT NULL, "Song" bigint NOT NULL, "Title" varchar,'
            ' PRIMARY KEY ("Id", "Song")) INTERLEAVE IN PARENT "Artists" ON DELETE NO ACTION'
        ),
        'CREATE TABLE "Names" ("Id" bigint NOT NULL PRIMARY KEY, "Name" varchar)',
        'CREATE UNIQUE INDEX "NamesByName" ON "Names" ("Name")',
    ],
}


def target_of(sample: SampleDatabase) -> DatabaseAddress:
    return DatabaseAddress(sample.project, sample.instance, sample.database_id, None, sample.host)


class Replica:
    """A database, and what is applied to it.

    Args:
        sample: the database.
        spool: whose epochs are applied.
        source: whose changes they are; None: nothing of them is left out.
        sink: options.

    Attributes:
        sample: the database.
        dead_letters: of the sink.
    """

    def __init__(
        self, sample: SampleDatabase, spool: SpoolMaker, source: SampleDatabase | None = None, /, **sink: Any
    ) -> None:
        self.sample = sample
        self._spool = spool
        config = SpannerConfig.model_validate({"database": sample.database_id, **sink})
        self._applying = Applying.of(config)
        self._target = target_of(sample)
        folder = Path(spool.path).parent / "dead/spanner"
        self._place = SpannerPlace(self._target, config.transaction_tag, str(folder))
        if source is not None:
            creation = Creation(target_of(source), (), (), ()) if config.create_tables else None
            self._place = replace(self._place, source=target_of(source), creation=creation)
        self.dead_letters = DeadLetters(str(folder))
        prepare(self._target)

    def partition(self, first: int = 1, last: int | None = None) -> EpochsToApply:
        spool = self._spool.spool
        manifests = tuple(spool.manifest(epoch) for epoch in range(first, (last or spool.latest()) + 1))
        return EpochsToApply(spool.path, "spanner", self._place, self._applying, manifests)

    def apply(self, first: int = 1, last: int | None = None) -> list[WrittenUnits]:
        return list(applied(self.partition(first, last)))

    def rows(self, table: str, *columns: str) -> list[tuple[object, ...]]:
        quote = "`" if self.sample.dialect == "googlesql" else '"'
        names = ", ".join(f"{quote}{name}{quote}" for name in columns)
        with self.sample.database.snapshot() as snapshot:
            found = snapshot.execute_sql(f"SELECT {names} FROM {quote}{table}{quote} ORDER BY 1, 2")
            return [tuple(row) for row in found]

    def rejected(self) -> dict[str, list[str]]:
        """The reasons of the dead letters, by table."""
        found: dict[str, list[str]] = {}
        for file in self.dead_letters.files():
            found.setdefault(file.table, []).extend(Counter(file.reasons).elements())
        return found
