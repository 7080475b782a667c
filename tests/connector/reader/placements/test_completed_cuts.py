"""A cut is completed with an initial query of each read function that has no partition in it."""

import pytest

from connector.core.partitions import CutPartition
from connector.core.records import INITIAL_TOKEN, partition_id
from connector.errors import ConfigurationError
from connector.reader.placements.functions import completed_cut


def test_the_start_of_a_spool_is_that_of_each_function() -> None:
    cut = completed_cut([CutPartition(INITIAL_TOKEN, 30)], ["F", "G"], 29)
    assert cut == (CutPartition(partition_id("", "F"), 30), CutPartition(partition_id("", "G"), 30))


def test_a_function_without_a_partition_begins_after_the_watermark() -> None:
    one = CutPartition(partition_id("a", "F"), 10)
    assert completed_cut([one], ["F", "G"], 29) == (one, CutPartition(partition_id("", "G"), 30))


def test_a_partition_of_a_function_that_is_not_listed_is_read_on() -> None:
    one = CutPartition(partition_id("a", "F"), 10)
    assert completed_cut([one], [], 29) == (one,)


def test_a_partition_from_before_the_functions_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="of a time when"):
        completed_cut([CutPartition("a", 10)], ["F"], 29)
