"""Rows as messages: every way of framing them that google.spanner.v1.PartialResultSet leaves a server."""

from collections.abc import Iterator, Sequence

from google.cloud.spanner_v1 import types
from hypothesis import strategies as st

from tests.property.decoding.change_rows import Node, value

_PartialResultSet = types.PartialResultSet.pb()


def field(number: int, content: bytes) -> bytes:
    """A field of a message: its tag, its length, seven bits a byte, and its content."""
    length, encoded = len(content), bytes([number << 3 | 2])
    while length > 0x7F:
        encoded += bytes([length & 0x7F | 0x80])
        length >>= 7
    return encoded + bytes([length]) + content


def message(
    nodes: Sequence[Node], *, chunked: bool = False, metadata: bytes | None = None, token: bytes = b""
) -> bytes:
    """A message of these values."""
    told: bytes = _PartialResultSet(
        values=map(value, nodes), chunked_value=chunked, resume_token=token
    ).SerializeToString()
    return told if metadata is None else field(1, metadata) + told


@st.composite
def framed(draw: st.DrawFn, rows: Sequence[Node], metadata: bytes | None) -> list[bytes]:
    """The messages of an answer that begins with ``metadata``."""
    together = draw(st.sampled_from((1, 2, 5, 100)))
    chunks, bare = draw(st.sampled_from((0, 0, 3, 1))), draw(st.sampled_from((0, 0, 4)))
    found: list[bytes] = []

    def tell(nodes: Sequence[Node], *, chunked: bool = False) -> None:
        token = b"resume" * (len(found) % 2) if not chunked else b""
        found.append(message(nodes, chunked=chunked, metadata=None if found else metadata, token=token))
        if bare and draw(st.integers(1, bare)) == 1:
            found.append(message([]))

    held: list[Node] = []
    for row in rows:
        pieces = [row]
        while chunks and len(pieces) < 6 and draw(st.integers(1, chunks)) == 1:
            pieces[-1:] = cut(draw, pieces[-1])
        for piece in pieces[:-1]:
            tell([*held, piece], chunked=True)
            held = []
        held.append(pieces[-1])
        if len(held) >= together:
            tell(held)
            held = []
    if held or not found:
        tell(held)
    return found


def cut(draw: st.DrawFn, node: Node) -> tuple[Node, Node]:
    """Two chunks of a string or a list, cut anywhere; neighbours that would be merged are not cut apart."""
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
    """Every way of cutting a string or a list into two chunks."""
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
    """Whether a chunk that ends before ``at`` and one that begins with it would be merged there."""
    return 0 < at < len(node) and any(
        isinstance(node[at - 1], kind) and isinstance(node[at], kind) for kind in (str, list)
    )


@st.composite
def lists(draw: st.DrawFn, messages: Sequence[bytes]) -> list[list[bytes]]:
    """The messages in the lists in which they are given to a decoder: none, one or many."""
    found: list[list[bytes]] = [[]]
    most = draw(st.sampled_from((1, 3, 1000)))
    for one in messages:
        if len(found[-1]) >= most or draw(st.integers(0, 9)) == 0:
            found.append([])
        found[-1].append(one)
    return found
