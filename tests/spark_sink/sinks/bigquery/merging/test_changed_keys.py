"""The statements beside a backfill do what the properties of changes and a backfill say of them."""

from random import Random

import pytest

from spark_sink.sinks.bigquery.merging.row_merger import RowMerger
from tests.connector.builders import AT
from tests.local_bigquery import LocalBigQuery
from tests.property import bigquery_merging
from tests.property.bigquery_merging import Change
from tests.spark_sink.sinks.bigquery.deliveries.scenarios import MakeScenario, singers
from tests.spark_sink.sinks.bigquery.merging.statements import Statements


def drawn(random: Random) -> Change:
    values = {
        "Name": random.choice([None, "", "b\n\"\\'€"]),
        "Born": random.choice([None, "0", "-9223372036854775808"]),
        "Tags": random.choice([None, [], ["b", ""]]),
    }
    named = dict(random.sample(sorted(values.items()), random.randrange(4)))
    key = (random.choice(["", "eu"]), random.choice(["1", "-2"]))
    return Change(random.choice(["INSERT", "UPDATE", "UPDATE", "UPDATE", "DELETE"]), key, named)


@pytest.mark.long(but=1)
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 30))])
def test_statements_of_changes_and_a_backfill_do_what_the_property_says_of_them(
    local_bigquery: LocalBigQuery, make_scenario: MakeScenario, seed: int
) -> None:
    random = Random(seed)
    scenario = make_scenario(local_bigquery, "merge-load")
    statements, by_hand = Statements(scenario), bigquery_merging.Backfilled()
    changes = [drawn(random) for _ in range(18)]
    read_at = 6
    snapshot = bigquery_merging.replayed(changes[:read_at])
    rows = bigquery_merging.snapshot_of(snapshot, AT + read_at // 3 - 1)
    read = [rows.slice(at, 2) for at in range(0, len(snapshot), 2)]
    streamed = [bigquery_merging.rows_of(changes).slice(at, 4) for at in range(read_at, len(changes), 4)]
    while streamed or read:
        is_stream = bool(streamed) and (not read or random.random() < 0.5)
        lines = bigquery_merging.lines_of(RowMerger(statements.table), (streamed if is_stream else read).pop(0))
        statements.load(lines)
        if is_stream:
            statements.note()
            by_hand.note(lines)
            if snapshot and random.random() < 0.5:  # a backfill's merge between the two
                statements.load(bigquery_merging.lines_of(RowMerger(statements.table), rows))
                statements.backfill()
                by_hand.backfill(bigquery_merging.lines_of(RowMerger(statements.table), rows))
                statements.load(lines)
            statements.merge()
            by_hand.merge(lines)
        else:
            statements.backfill()
            by_hand.backfill(lines)
        found = singers(scenario)
        assert found == by_hand.rows
    assert by_hand.rows == bigquery_merging.replayed(changes)
