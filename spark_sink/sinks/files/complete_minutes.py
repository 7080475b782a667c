"""The documents of complete minutes, ``_complete/{yyyy}/{mm}/{dd}/{hh}/{minute}.json`` beside the files. Pure.

A minute is complete once the sink's watermark has passed its end, and every file that the change stream has of it is
there. Its document is written then, and never again. It names the files: what a backfill or a replay of dead letters
writes into the minute's folders later is not among them.

Spark ignores what is in a folder whose name begins with an underscore. Dataflow's reader of Datastream's files looks
for empty objects that stand for folders, of which there are none here. Where it is notified of each new object instead,
it takes a document for an event without a payload, and ignores it: hence a document is one line, and has no such field.
"""

from collections.abc import Iterable, Mapping, Sequence

import orjson
from pydantic import Field

from connector.core.timestamps import MINUTE, format_rfc3339, parse
from connector.spool.manifest import Document, DocumentPart, Timestamp
from spark_sink.sinks.files.writer import WrittenFile
from spark_sink.sinks.shared.published_cut import PublishedCut, TableAtCut

FOLDER = "_complete"


class MinuteOfTable(DocumentPart):
    """The files of a table in a minute.

    Attributes:
        files: their paths, relative to the root.
        rows: how many events they hold.
        bytes: their size.
        incomplete: the reason why the table lacks rows, or has too many; empty if it is complete.
    """

    files: tuple[str, ...] = ()
    rows: int = Field(default=0, ge=0)
    bytes: int = Field(default=0, ge=0)
    incomplete: str = ""

    @classmethod
    def of(cls, files: Iterable[WrittenFile], incomplete: str) -> "MinuteOfTable":
        """Of these files."""
        known = sorted(files, key=lambda file: file.path)
        return cls(
            files=tuple(file.path for file in known),
            rows=sum(file.rows for file in known),
            bytes=sum(file.bytes for file in known),
            incomplete=incomplete,
        )


class CompleteMinute(Document):
    """A document.

    Attributes:
        minute: its first nanosecond, Unix nanoseconds.
        timestamp: its last nanosecond: the commit timestamp up to which all files are there, Unix nanoseconds.
        epoch: the last epoch that was delivered when it was published.
        spool_id: the spool's id.
        sink: the sink's name.
        published_at: the time of publication by the clock of the sink's machine, Unix nanoseconds.
        tables: every table that the sink delivers, by its name in the source.
    """

    minute: Timestamp
    timestamp: Timestamp
    epoch: int = Field(ge=1)
    spool_id: str
    sink: str
    published_at: Timestamp
    tables: dict[str, MinuteOfTable]

    @classmethod
    def of(
        cls, minute: int, files: Iterable[WrittenFile], cut: PublishedCut, sink: str, incomplete: Mapping[str, str]
    ) -> "CompleteMinute":
        """The document of a minute.

        Args:
            minute: counted since 1970.
            files: its files.
            cut: is after its end.
            sink: the sink's name.
            incomplete: the reasons of tables that are incomplete as of its end.
        """
        by_table: dict[str, list[WrittenFile]] = {name: [] for name in cut.tables}
        for file in files:
            by_table.setdefault(file.table, []).append(file)
        return cls(
            minute=minute * MINUTE,
            timestamp=(minute + 1) * MINUTE - 1,
            epoch=cut.epoch,
            spool_id=cut.spool_id,
            sink=sink,
            published_at=cut.published_at,
            tables={
                name: MinuteOfTable.of(found, incomplete.get(name, "")) for name, found in sorted(by_table.items())
            },
        )

    @staticmethod
    def path_of(minute: int) -> str:
        """The path of a minute's document, relative to the root; the minute is counted since 1970."""
        return f"{hour_folder(minute)}/{minute % 60:02d}.json"

    @property
    def path(self) -> str:
        """The document's path, relative to the root."""
        return self.path_of(self.minute // MINUTE)

    def to_json(self) -> bytes:
        """The document's bytes: one line."""
        return orjson.dumps(self.model_dump(mode="json"), option=orjson.OPT_APPEND_NEWLINE)

    def has_files_of(self, other: "CompleteMinute") -> bool:
        """True if both are of one sink and spool, and name the same files."""
        return (self.spool_id, self.sink, self.files) == (other.spool_id, other.sink, other.files)

    @property
    def files(self) -> Mapping[str, Sequence[str]]:
        """The paths of each table's files; without tables that have none."""
        return {name: table.files for name, table in self.tables.items() if table.files}

    def as_cut(self) -> PublishedCut:
        """The cut at the minute's end."""
        return PublishedCut(
            timestamp=self.timestamp,
            epoch=self.epoch,
            spool_id=self.spool_id,
            published_at=self.published_at,
            tables={name: TableAtCut(incomplete=table.incomplete) for name, table in self.tables.items()},
        )


def hour_folder(minute: int) -> str:
    """The folder of the documents of a minute's hour; the minute is counted since 1970."""
    time = format_rfc3339(minute * MINUTE)
    return "/".join((FOLDER, time[0:4], time[5:7], time[8:10], time[11:13]))


def minute_of(file: WrittenFile) -> int:
    """The minute, counted since 1970, that a file is of."""
    year, month, day, hour, minute = file.path.split("/")[1:6]
    return parse(f"{year}-{month}-{day}T{hour}:{minute}:00Z") // MINUTE
