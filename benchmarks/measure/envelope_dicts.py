"""An event in Datastream's envelope as a dict, row by row, as one would write it by hand."""

import time
from datetime import datetime
from uuid import NAMESPACE_URL, uuid5

import orjson

from benchmarks.measure.reading import NAME, SOURCE


def envelope(
    record: dict[str, object], index: int, keys: dict[str, object], values: dict[str, object]
) -> dict[str, object]:
    """Returns the event of a mod of a record."""
    at = record["commit_timestamp"]
    committed = at if isinstance(at, datetime) else datetime.fromisoformat(str(at))
    text = committed.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    microseconds = int(committed.timestamp() * 1_000_000)
    nanoseconds = microseconds * 1000
    sequence, transaction = str(record["record_sequence"]), record["server_transaction_id"]
    return {
        "stream_name": SOURCE.stream_name,
        "read_method": "spanner-cdc",
        "object": record["table_name"],
        "schema_key": "0" * 40,
        "uuid": str(uuid5(NAMESPACE_URL, f"{transaction}/{sequence}/{index}")),
        "read_timestamp": time.time_ns() // 1000,
        "source_timestamp": microseconds,
        "sort_keys": [str(microseconds // 1000), str(nanoseconds), sequence, str(index)],
        "change_sequence_number": f"{nanoseconds:016X}/{int(sequence):016X}/{index:016X}",
        "source_metadata": {
            "commit_timestamp": text,
            "snapshot": False,
            "project_id": NAME.project,
            "instance_id": NAME.instance,
            "database_id": NAME.database,
            "change_stream_name": NAME.change_stream,
            "schema": SOURCE.default_schema,
            "database": NAME.database,
            "table": record["table_name"],
            "server_transaction_id": transaction,
            "record_sequence": sequence,
            "mod_index": index,
            "transaction_tag": record["transaction_tag"],
            "system_transaction": record["is_system_transaction"],
            "number_of_records_in_transaction": record["number_of_records_in_transaction"],
            "number_of_partitions_in_transaction": record["number_of_partitions_in_transaction"],
            "is_last_record_in_transaction_in_partition": record["is_last_record_in_transaction_in_partition"],
            "value_capture_type": record["value_capture_type"],
            "mod_type": record["mod_type"],
            "change_type": record["mod_type"],
            "primary_keys": list(keys),
            "is_deleted": record["mod_type"] == "DELETE",
        },
        "payload": orjson.dumps({**keys, **values}).decode(),
        "before": None,
        "epoch": 1,
    }
