"""The rules for columns: which are excluded, and which are hashed. Pure.

A rule is a shell pattern over ``table.column``, as those of ``source.tables`` are over table names; ``*`` matches dots,
too. Upper and lower case count as one, because they do in GoogleSQL: a column that is created again with another
spelling stays hidden.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import lru_cache

from connector.core.masking.digests import ALGORITHM, Digester, fingerprint
from connector.core.masking.masks import ColumnMask
from connector.core.records import ColumnType
from connector.core.schemas import TableSchema
from connector.errors import ConfigurationError

EXCLUDE, HASH = "source.columns.exclude", "source.columns.hash"

STRING_TYPE = '{"code":"STRING"}'
"""The type of a hashed column in both dialects."""


@dataclass(frozen=True, slots=True)
class HashRule:
    """Hashes the columns that a pattern matches.

    Attributes:
        pattern: over ``table.column``.
        salt: the key of the hash.
        algorithm: its name.
    """

    pattern: str
    salt: str = field(repr=False)
    algorithm: str = ALGORITHM


@dataclass(frozen=True, slots=True)
class RulesFingerprint:
    """The note in a spool of the rules that it is written with: it distinguishes rules, and holds no salt.

    Attributes:
        exclude: the patterns, sorted.
        hash: by pattern, the algorithm and the fingerprint of the salt.
    """

    exclude: tuple[str, ...] = ()
    hash: Mapping[str, str] = field(default_factory=dict)

    def changes(self, now: "RulesFingerprint") -> str:
        """The differences in the rules of ``now``, for people; empty if there are none."""
        found = [f"exclude no longer has {one}" for one in self.exclude if one not in now.exclude]
        found += [f"exclude has {one} now" for one in now.exclude if one not in self.exclude]
        found += [f"hash no longer has {one}" for one in self.hash if one not in now.hash]
        found += [f"hash has {one} now" for one in now.hash if one not in self.hash]
        found += [
            f"the salt of {one} is another" for one in self.hash if one in now.hash and now.hash[one] != self.hash[one]
        ]
        return ", ".join(found)


@dataclass(frozen=True, slots=True)
class ColumnRules:
    """The columns that are excluded, and those that are hashed.

    Attributes:
        exclude: patterns over ``table.column``.
        hash: how others are hashed.
    """

    exclude: tuple[str, ...] = ()
    hash: tuple[HashRule, ...] = ()

    def mask(self, table: str, columns: Sequence[ColumnType]) -> ColumnMask | None:
        """The mask of a table's columns; None if no pattern can match a column of the table.

        Args:
            table: its name, ``schema.table`` in a named schema.
            columns: those that a record or a result lists.

        Raises:
            ConfigurationError: the rules exclude a column of the key, or contradict each other.
        """
        if not any(_may_match(pattern, table) for _, pattern in self._patterns()):
            return None
        if errors := list(self._contradictions(table, columns)):
            raise ConfigurationError(errors)
        kept: list[ColumnType] = []
        digesters: dict[str, Digester] = {}
        for column in columns:
            rule = self.hashed_by(table, column.name)
            if rule is not None:
                digesters[column.name] = Digester(column.type, rule.salt.encode())
                kept.append(replace(column, type=STRING_TYPE))
            elif not self.excluded_by(table, column.name):
                kept.append(column)
        listed = frozenset(column.name for column in columns)
        return ColumnMask(table, tuple(kept), listed, listed.difference(column.name for column in kept), digesters)

    def schema(self, table: TableSchema) -> TableSchema:
        """A table's schema after the rules: excluded columns are absent, and hashed ones are strings.

        Raises:
            ConfigurationError: as of :meth:`mask`.
        """
        mask = self.mask(table.table, table.columns)
        return table if mask is None else TableSchema.of(table.table, mask.columns, table.primary_keys)

    def hashed_key(self, table: str, key: Iterable[str]) -> str:
        """The first column of a table's key that is hashed; empty if none is."""
        return next((column for column in key if self.hashed_by(table, column)), "")

    def errors(self, tables: Iterable[TableSchema]) -> list[str]:
        """The rules that tables contradict, each as one line: a column of a key is excluded, or two rules differ."""
        return [error for table in tables for error in self._contradictions(table.table, table.columns)]

    def unmatched(self, tables: Iterable[TableSchema]) -> list[str]:
        """The patterns that match no column, each after its option: most likely typing errors."""
        names = [(table.table, column.name) for table in tables for column in table.columns]
        return [
            f"{option}: {pattern!r}"
            for option, pattern in self._patterns()
            if not any(_matches(pattern, table, column) for table, column in names)
        ]

    @property
    def fingerprint(self) -> RulesFingerprint:
        """The note of them in a spool."""
        hashed = {rule.pattern: f"{rule.algorithm}:{fingerprint(rule.salt.encode())}" for rule in self.hash}
        return RulesFingerprint(tuple(sorted(self.exclude)), dict(sorted(hashed.items())))

    def excluded_by(self, table: str, column: str) -> str:
        """The pattern that excludes a column; empty if none does."""
        return next((pattern for pattern in self.exclude if _matches(pattern, table, column)), "")

    def hashed_by(self, table: str, column: str) -> HashRule | None:
        """The rule that hashes a column."""
        return next((rule for rule in self.hash if _matches(rule.pattern, table, column)), None)

    def _patterns(self) -> list[tuple[str, str]]:
        """The patterns, each after its option."""
        return [(EXCLUDE, pattern) for pattern in self.exclude] + [(HASH, rule.pattern) for rule in self.hash]

    def _contradictions(self, table: str, columns: Iterable[ColumnType]) -> Iterator[str]:
        for column in columns:
            name = f"{table}.{column.name}"
            pattern = self.excluded_by(table, column.name)
            rules = [rule for rule in self.hash if _matches(rule.pattern, table, column.name)]
            if pattern and column.is_primary_key:
                yield f"{EXCLUDE}: {pattern!r} matches {name}, a column of the key, which changes need: hash it instead"
            if pattern and rules:
                yield f"{EXCLUDE}: {pattern!r} excludes {name}, which {rules[0].pattern!r} hashes: choose one"
            if len({(rule.salt, rule.algorithm) for rule in rules}) > 1:
                names = " and ".join(repr(rule.pattern) for rule in rules)
                yield f"{HASH}: {names} match {name}, with different salts: choose one"


@lru_cache(10_000)
def _matches(pattern: str, table: str, column: str) -> bool:
    return fnmatchcase(f"{table}.{column}".lower(), pattern.lower())


@lru_cache(10_000)
def _may_match(pattern: str, table: str) -> bool:
    """True unless no name of a column makes the pattern match; decided by what may stand for the table's dot."""
    wanted, name = pattern.lower(), table.lower()
    for at, character in enumerate(wanted):
        before = wanted[: at + 1] if character == "*" else wanted[:at]
        if character in ".*?[" and fnmatchcase(name, before):
            return True
    return False
