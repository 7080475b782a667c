"""The description of change streams for people: a table of columns for each table."""

from collections.abc import Iterable, Sequence

import orjson

from connector.cli.discovering.objects import Description


def streams_text(streams: Iterable[Description]) -> str:
    """The description of change streams, as text."""
    lines: list[str] = []
    for stream in streams:
        lines.append(
            f"{stream['change_stream']}  {stream['dialect']}  {stream['value_capture_type']}"
            f"  retention {stream['retention_period']}{' (default)' if stream['retention_is_default'] else ''}"
            f"  {stream['partition_mode']}{_other_options(stream)}"
        )
        lines += _problem_lines(stream, indent="  ")
        lines += _function_lines(stream)
        if not stream["tables"]:
            lines.append("  watches no table: nothing is recorded")
        for table in stream["tables"]:
            lines += _table_lines(table)
    return "\n".join(lines) or "no change streams"


def _table_lines(table: Description) -> Iterable[str]:
    columns = table["columns"]
    variants = list(dict.fromkeys(variant for column in columns for variant in column["sinks"]))
    heads = ["column", "Spanner", "unified type", *variants]
    rows = [
        [
            f"{column['name']}{'*' if column['is_primary_key'] else ''}",
            column["data_type"],
            unified_text(column["unified_type"]),
            *(column["sinks"].get(variant, "") for variant in variants),
        ]
        for column in columns
    ]
    yield f"  {table['table']}"
    yield from (f"    {line}" for line in aligned([heads, *rows]))
    yield from _problem_lines(table, indent="    ")


def _problem_lines(report: Description, *, indent: str) -> Iterable[str]:
    for sink, found in report.get("problems", {}).items():
        yield from (f"{indent}{sink}: {problem}" for problem in found)


def _function_lines(stream: Description) -> Iterable[str]:
    """The read functions of a stream that has one for each placement."""
    functions = stream.get("read_functions", {})
    yield from (f"  placement {placement}: {function}" for placement, function in functions.items())
    if problem := stream.get("read_functions_problem"):
        yield f"  read functions: {problem}"


def _other_options(stream: Description) -> str:
    """The options that have no place of their own."""
    return "".join(f"  {name}={value}" for name, value in stream["options"].items() if name not in stream)


def unified_text(schema: object) -> str:
    """A type of Avro in one word or two."""
    if isinstance(schema, str):
        return schema
    assert isinstance(schema, dict)
    if schema["type"] == "array":
        return f"array of {unified_text(schema['items'])}"
    details = {name: value for name, value in schema.items() if name not in ("type", "logicalType")}
    name = str(schema.get("logicalType", schema["type"]))
    return f"{name}({', '.join(orjson.dumps(value).decode() for value in details.values())})" if details else name


def aligned(rows: Sequence[Sequence[str]]) -> Iterable[str]:
    """The rows of a table, of which each column is as wide as its longest text."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
