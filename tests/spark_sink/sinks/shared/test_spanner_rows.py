"""A read of rows that fails proves only what its error says."""

from collections.abc import Iterator

import pytest

from connector.config import SourceConfig
from connector.errors import NoSuchTableError, SpannerCdcError, UnreachableError, VersionRetentionError
from connector.spanner.snapshot import reading
from connector.spanner.snapshot.queries import TableQuery
from spark_sink.sinks.shared.completing.spanner_rows import Completion, SpannerRows
from spark_sink.sinks.shared.completing.whole_rows import Found, Read

SOURCE = SourceConfig(
    project="p", instance="in", database="d", change_stream="Everything", complete_rows=True, emulator_host="x:1"
)


class Spanner:
    """A table with a column that exists from some timestamp on; it may be unreachable, or keep no old rows."""

    def __init__(self, *, since: int = 0, retained: int = 0, unreachable: frozenset[int] = frozenset()) -> None:
        self.calls = 0
        self._since, self._retained, self._unreachable = since, retained, unreachable

    def read_keys(
        self,
        source: object,
        query: TableQuery,
        keys: object,
        key_columns: object,
        timestamp: int,
        **_: object,
    ) -> Iterator[None]:
        self.calls += 1
        if self.calls in self._unreachable:
            raise UnreachableError("Spanner does not answer")
        if timestamp < self._retained:
            raise VersionRetentionError("too old")
        if "b" in query.columns and timestamp < self._since:
            raise NoSuchTableError("Column not found")
        return iter(())


def reads(monkeypatch: pytest.MonkeyPatch, spanner: Spanner, *at: int) -> list[Found]:
    monkeypatch.setattr(reading, "read_keys", spanner.read_keys)
    completion = Completion.from_text(Completion.text_of(SOURCE, deletes=False))
    assert completion is not None
    rows = SpannerRows(completion)
    return [rows.read(Read("t", ("a", "b"), ("k",), ('{"k":"1"}',), one)) for one in at]


def test_a_column_that_is_added_later_is_read_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    found = reads(monkeypatch, Spanner(since=1000), 500, 600, 2000, 2001)
    assert [one.gone for one in found] == [{"b"}, {"b"}, set(), set()]


@pytest.mark.parametrize("call", [1, 2, 3, 4])
def test_an_outage_is_never_taken_for_a_missing_column(monkeypatch: pytest.MonkeyPatch, call: int) -> None:
    with pytest.raises(SpannerCdcError, match="does not answer"):
        reads(monkeypatch, Spanner(since=1000, unreachable=frozenset({call})), 500)


def test_rows_that_are_too_old_are_not_requested_again(monkeypatch: pytest.MonkeyPatch) -> None:
    spanner = Spanner(retained=1000)
    found = reads(monkeypatch, spanner, 900, *range(500, 900, 10), 2000)
    assert spanner.calls == 2
    assert all(one == Found() for one in found)
