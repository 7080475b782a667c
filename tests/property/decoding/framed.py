"""Frames rows as messages, in every way that google.spanner.v1.PartialResultSet allows a server."""

from collections.abc import Iterator, Sequence

from google.cloud.spanner_v1 import types
from hypothesis import strategies as st

from tests.property.decoding.change_rows import Node, value

_PartialResultSet = types.PartialResultSet.pb()


def field(number: int, content: bytes) -> bytes:
    """Encodes a field of a message: its tag, its length as a varint, and its content."""
    length, encoded = len(content), bytes([number << 3 | 2])
    while length > 0x7F:
        encoded += bytes([length & 0x7F | 0x80])
        length >>= 7
    return encoded + bytes([length]) + content


def message(
    nodes: Sequence[Node], *, chunked: bool = False, metadata: bytes | None = None, token: bytes = b""
) -> bytes:
    """Encodes a message with these values."""
    encoded: bytes = _PartialResultSet(
        values=map(value, nodes), chunked_value=chunked, resume_token=token
    ).SerializeToString()
    return encoded if metadata is None else field(1, metadata) + encoded


@st.composite
def framed(draw: st.DrawFn, rows: Sequence[Node], metadata: bytes | None) -> list[bytes]:
    """Draws the messages of an answer; the first one has ``metadata``."""
    together = draw(st.sampled_from((1, 2, 5, 100)))
    chunks, bare = draw(st.sampled_from((0, 0, 3, 1))), draw(st.sampled_from((0, 0, 4)))
    found: list[bytes] = []

    def send(nodes: Sequence[Node], *, chunked: bool = False) -> None:
        token = b"resume" * (len(found) % 2) if not chunked else b""
        found.append(message(nodes, chunked=chunked, metadata=None if found else metadata, token=token))
        if bare and draw(st.integers(1, bare)) == 1:
            found.append(message([]))

    held: list[Node] = []
    for row in rows:
        parts = [row]
        while chunks and len(parts) < 6 and draw(st.integers(1, chunks)) == 1:
            parts[-1:] = cut(draw, parts[-1])
        for part in parts[:-1]:
            send([*held, part], chunked=True)
            held = []
        held.append(parts[-1])
        if len(held) >= together:
            send(held)
            held = []
    if held or not found:
        send(held)
    return found


def cut(draw: st.DrawFn, node: Node) -> tuple[Node, Node]:
    """Cuts a string or a list in two chunks anywhere but between items that merging would join."""
    if isinstance(node, str):
        at = draw(st.integers(0, len(node)))
        return node[:at], node[at:]
    assert isinstance(node, list)
    at = draw(st.integers(0, len(node)))
    if at < len(node) and isinstance(node[at], str | list) and (_merge(node, at) or draw(st.booleans())):
        left, right = cut(draw, node[at])
        return [*node[:at], left], [right, *node[at + 1 :]]
    return node[:at], node[at:]


def cuts(node: Node) -> Iterator[tuple[Node, Node]]:
    """Yields every way of cutting a string or a list into two chunks."""
    if isinstance(node, str):
        yield from ((node[:at], node[at:]) for at in range(len(node) + 1))
    elif isinstance(node, list):
        for at, item in enumerate(node):
            if not _merge(node, at):
                yield node[:at], node[at:]
            for left, right in cuts(item):
                yield [*node[:at], left], [right, *node[at + 1 :]]
        yield node, []


def _merge(node: list[Node], at: int) -> bool:
    """True if a chunk that ends before ``at`` and one that begins with it would be merged there."""
    return 0 < at < len(node) and any(
        isinstance(node[at - 1], kind) and isinstance(node[at], kind) for kind in (str, list)
    )


@st.composite
def lists(draw: st.DrawFn, messages: Sequence[bytes]) -> list[list[bytes]]:
    """Draws the lists in which messages are given to a decoder: of none, one or many."""
    found: list[list[bytes]] = [[]]
    most = draw(st.sampled_from((1, 3, 1000)))
    for one in messages:
        if len(found[-1]) >= most or draw(st.integers(0, 9)) == 0:
            found.append([])
        found[-1].append(one)
    return found
