"""The gaps of a destination with a row for each row of Spanner if its change stream omits changes. Pure."""

from connector.config.sinks import WatchedStream

_EFFECTS = {
    "exclude_insert": "rows that are inserted are missing at the destination",
    "exclude_update": "rows that are updated keep their old values at the destination",
    "exclude_delete": "rows that are deleted stay at the destination",
    "exclude_ttl_deletes": "rows that are deleted by a row deletion policy stay at the destination",
    "allow_txn_exclusion": "transactions that ask to be excluded are missing at the destination",
}
"""By the option of a change stream."""


def omitted_changes(stream: WatchedStream) -> list[str]:
    """A warning for each option by which the stream omits changes."""
    return [
        f"source.change_stream: {stream.name} has {option}: {effect}"
        for option, effect in _EFFECTS.items()
        if _is_on(stream.options.get(option, ""))
    ]


def _is_on(text: str) -> bool:
    """True if a BOOL option is true, as either dialect spells it."""
    return text.lower() in ("true", "t", "yes", "on", "1")
