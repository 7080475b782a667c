"""The columns that are excluded or hashed before anything is kept: ``source.columns``."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, SecretStr, field_validator

from connector.core.masking.rules import ColumnRules, HashRule

_SHORTEST_SALT = 16
"""Characters. A shorter one is found by trying, and with it the values."""


class ColumnHash(BaseModel):
    """The hash of some columns."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    algorithm: Literal["sha256"] = "sha256"
    """HMAC-SHA-256 is the only one."""
    salt: SecretStr
    """The key of the hash, of 16 characters at least: keep it in a variable, such as ``${SALT}``."""

    @field_validator("salt")
    @classmethod
    def _is_long(cls, value: SecretStr) -> SecretStr:
        if len(value.get_secret_value()) < _SHORTEST_SALT:
            raise ValueError(f"is shorter than {_SHORTEST_SALT} characters: `openssl rand -hex 32` makes one")
        return value


class Columns(BaseModel):
    """Columns that are excluded or hashed: shell patterns over ``Table.Column``."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    exclude: tuple[str, ...] = ()
    """Patterns of the columns that are excluded, as ``Table.Column`` or ``*.Column``; none may be of a key."""
    hash: dict[str, ColumnHash] = {}
    """By pattern, how columns are hashed: ``{algorithm: sha256, salt: "${SALT}"}``."""

    @field_validator("exclude", "hash")
    @classmethod
    def _are_of_columns(cls, value: tuple[str, ...] | dict[str, ColumnHash]) -> tuple[str, ...] | dict[str, ColumnHash]:
        for pattern in value:
            if not any(character in pattern for character in ".*?["):
                raise ValueError(f"{pattern!r} names no column: write Table.Column, or *.Column for all tables")
        return value

    @property
    def rules(self) -> ColumnRules | None:
        """The rules; None if there are none."""
        hashed = tuple(HashRule(name, one.salt.get_secret_value(), one.algorithm) for name, one in self.hash.items())
        return ColumnRules(self.exclude, hashed) if self.exclude or hashed else None
