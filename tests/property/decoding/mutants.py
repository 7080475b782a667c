"""Mutants of the column decoder of the MUTABLE_KEY_RANGE mode: each breaks one rule that the properties check."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from connector.core import value_texts
from connector.spanner.decoding import mod_values, mutable

Mutant = Callable[[], AbstractContextManager[object]]
"""Breaks a rule while its context is open."""


def nothing_below_a_space_is_escaped() -> AbstractContextManager[object]:
    return patch.object(value_texts, "_FIRST_PLAIN", 0)


def backslashes_are_not_escaped() -> AbstractContextManager[object]:
    return patch.object(value_texts, "_BACKSLASH", ord('"'))


def numbers_that_are_not_finite_are_null() -> AbstractContextManager[object]:
    return patch.object(value_texts, "json_number", float)


def enumerations_have_any_number() -> AbstractContextManager[object]:
    return patch.object(mutable, "_named", lambda numbers, _: [str(number) for number in numbers])


def old_values_are_the_new_ones() -> AbstractContextManager[object]:
    def swapped(*arguments: Any) -> list[pa.StringArray]:
        keys, old_values, new_values = mod_values.payloads(*arguments)
        return [keys, new_values, old_values]

    return patch.object(mutable, "payloads", swapped)


def every_record_has_the_first_schema() -> AbstractContextManager[object]:
    def of_one(mods: Any, schemas: Any, columns: Any) -> list[pa.StringArray]:
        return mod_values.payloads(mods, np.zeros_like(schemas), columns)

    return patch.object(mutable, "payloads", of_one)


def rows_may_hold_other_records() -> AbstractContextManager[object]:
    return patch.object(mutable, "_are_data", lambda _: True)


MUTANTS = (
    nothing_below_a_space_is_escaped, backslashes_are_not_escaped, numbers_that_are_not_finite_are_null,
    enumerations_have_any_number, old_values_are_the_new_ones, every_record_has_the_first_schema,
    rows_may_hold_other_records,
)  # fmt: skip
