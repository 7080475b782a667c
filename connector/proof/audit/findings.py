"""The findings of an audit, as data and as text: names, numbers and timestamps, never a row's values. Pure."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum

from connector.core.timestamps import format_rfc3339

MOST_FINDINGS = 1000
"""Findings that are described; those beyond are counted."""

MOST_MODS = 10
"""Mods of a transaction that are described; those beyond are counted."""


class Kind(StrEnum):
    """The kind of a finding."""

    MISSING = "missing"
    """A transaction that Spanner returns is not in the spool."""
    EXTRA = "extra"
    """A transaction in the spool is not returned by Spanner."""
    TWICE = "twice"
    """The spool holds mods of a transaction more than once."""
    DIFFERENT = "different"
    """The spool holds another transaction than Spanner returns: mods are missing, added or changed."""
    ORDER = "order"
    """The spool holds a transaction, or its mods, in another order than that of the commits."""
    EPOCH = "epoch"
    """An epoch's file is missing or damaged, or contradicts its manifest or the epochs beside it."""


@dataclass(frozen=True, slots=True)
class ModDifference:
    """A mod that differs: missing, extra, twice, or different in the named fields; columns as ``payload.Column``."""

    kind: Kind
    table: str
    record_sequence: str
    mod_index: int
    fields: tuple[str, ...] = ()

    def __str__(self) -> str:
        how = f"different in {', '.join(self.fields)}" if self.fields else self.kind.value
        return f"{self.table}, record sequence {self.record_sequence}, mod {self.mod_index}: {how}"


@dataclass(frozen=True, slots=True)
class TransactionFinding:
    """A transaction that the spool lacks, or holds in another way than Spanner returns it.

    Attributes:
        kind: what was found.
        commit_timestamp: nanoseconds since 1970.
        transaction: its server transaction id.
        tables: the tables of its mods.
        count: how many of its mods are concerned.
        mods: the first of them, if only some are.
        epoch: the epoch in which the spool holds it; None if it does not.
    """

    kind: Kind
    commit_timestamp: int
    transaction: str
    tables: tuple[str, ...]
    count: int
    mods: tuple[ModDifference, ...] = ()
    epoch: int | None = None

    def to_json(self) -> dict[str, object]:
        """For ``--json``."""
        return {
            "kind": self.kind.value,
            "commit_timestamp": format_rfc3339(self.commit_timestamp),
            "server_transaction_id": self.transaction,
            "tables": list(self.tables),
            "mods": self.count,
            "epoch": self.epoch,
            "differences": [asdict(mod) for mod in self.mods],
        }

    def __str__(self) -> str:
        where = "" if self.epoch is None else f", in epoch {self.epoch}"
        head = (
            f"{self.kind.value}: transaction {self.transaction}, committed at {format_rfc3339(self.commit_timestamp)}"
            f"{where}: {self.count} mods in {', '.join(self.tables)}"
        )
        more = self.count - len(self.mods)
        lines = [head, *(f"  {mod}" for mod in self.mods)]
        return "\n".join([*lines, f"  and {more} more mods"] if self.mods and more > 0 else lines)


@dataclass(frozen=True, slots=True)
class EpochFinding:
    """An epoch that cannot be read, or that contradicts its manifest or its neighbours."""

    epoch: int
    problem: str
    kind: Kind = Kind.EPOCH

    def to_json(self) -> dict[str, object]:
        """For ``--json``."""
        return {"kind": self.kind.value, "epoch": self.epoch, "problem": self.problem}

    def __str__(self) -> str:
        return f"epoch {self.epoch}: {self.problem}"


Finding = TransactionFinding | EpochFinding


class AuditFindings:
    """Counts what was compared and what was found, and keeps the first :data:`MOST_FINDINGS` findings.

    Attributes:
        transactions: transactions that Spanner returned and the filter keeps.
        mods: their mods.
    """

    def __init__(self) -> None:
        self.transactions = self.mods = 0
        self.counts: Counter[Kind] = Counter()
        self.first: list[Finding] = []

    def add(self, found: Iterable[Finding]) -> None:
        """Adds findings."""
        for one in found:
            self.counts[one.kind] += 1
            if len(self.first) < MOST_FINDINGS:
                self.first.append(one)

    @property
    def total(self) -> int:
        """The number of findings."""
        return self.counts.total()
