"""A table whose columns can partition or cluster it, or cannot."""

from connector.core.records import ColumnType
from connector.core.schemas import TableSchema

ORDERS = TableSchema(
    "Orders",
    (
        ColumnType("Id", '{"code":"INT64"}', True, 1),
        ColumnType("Placed on", '{"code":"TIMESTAMP"}', False, 2),
        ColumnType("Day", '{"code":"DATE"}', False, 3),
        ColumnType("Tags", '{"code":"ARRAY","array_element_type":{"code":"INT64"}}', False, 4),
    ),
    ("Id",),
)
