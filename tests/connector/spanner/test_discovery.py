"""Change streams as INFORMATION_SCHEMA describes them."""

import asyncio

from connector.core.dialects import GOOGLESQL
from connector.spanner.discovery import change_streams


class Schema:
    """Two change streams without tables."""

    database = "d"

    async def rows(self, sql: str) -> list[list[object]]:
        if "change_stream_options" in sql:
            return [["A", "exclude_delete", "true"], ["A", "retention_period", "7d"], ["A", "one_day", "x"]]
        return [["A", False], ["B", False]] if "information_schema.change_streams" in sql else []


def test_a_change_stream_has_all_options_that_are_set_also_those_that_are_not_known() -> None:
    one, other = asyncio.run(change_streams(Schema(), GOOGLESQL))
    assert one.options == {"exclude_delete": "true", "retention_period": "7d", "one_day": "x"}
    assert (one.retention_period, one.retention_is_default) == ("7d", False)
    assert other.options == {}
    assert (other.retention_period, other.retention_is_default) == ("7d", True)
