"""A destination whose bookkeeping is not of the spool: another spool's, another copy's, or of a forgotten sink.

What a spool has sealed since it was put back from an older copy is not skipped because of its numbers. Of what the
spool does not know, one line at the start of the sink says what follows.
"""

import shutil
from pathlib import Path

import pytest

from connector.core.records import DataChangeRecord
from connector.core.timestamps import SECOND, format_rfc3339
from connector.errors import SpoolError
from connector.spool import consumers
from connector.spool.sink_start import SinkStart, write_start
from spark_sink.sinks.shared.started_batches import StartedBatch, StartedBatches
from spark_sink.sinks.spanner.connection import key_of
from spark_sink.sinks.spanner.writing.former_progress import contradiction_at_start
from tests.integration.servers import MakeDatabase
from tests.spark_sink.sinks.spanner.applying import ARTISTS, Replica, target_of
from tests.spark_sink.sinks.spanner.changes import NAMES, change
from tests.spark_sink.spools import START, SpoolMaker, record


def inserted(key: int) -> DataChangeRecord:
    return change(key, "S", {"Id": str(key)}, {"V": "x"}, columns=NAMES)


@pytest.mark.long(but=1)
@pytest.mark.parametrize("mode", ["rows", "transactions"])
@pytest.mark.parametrize("since", [1, 6], ids=["fewer epochs", "as many"])
def test_a_spool_with_other_epochs_than_were_applied_is_refused(
    database: MakeDatabase, spool: SpoolMaker, mode: str, since: int
) -> None:
    sample = database()
    sample.run_ddl("CREATE TABLE S (Id INT64 NOT NULL, V STRING(MAX)) PRIMARY KEY (Id)")
    replica = Replica(sample, spool, mode=mode)
    for key in (1, 2):
        spool.seal(inserted(key))
    replica.apply()
    shutil.copytree(spool.path, f"{spool.path}.copy")
    for key in (3, 4, 5, 6):
        spool.seal(inserted(key))
        replica.apply(first=key)
    shutil.rmtree(spool.path)
    shutil.move(f"{spool.path}.copy", spool.path)
    restored = SpoolMaker(spool.path, reopen=True)
    for first in range(since):
        restored.seal(*(inserted(10 * first + key) for key in range(3, 8)))
    found = "ends with epoch 3" if since == 1 else "its epoch 6 is another"
    with pytest.raises(SpoolError, match=f"is another copy: (it )?{found}") as refused:
        replica.apply(first=3)
    assert "give the sink another sink.name" in refused.value.hint
    assert len(replica.rows("S", "Id", "V")) == 6


def names(spool: SpoolMaker, *seconds: int) -> None:
    """Seals an epoch for each of these seconds."""
    for second in seconds:
        spool.seal(record(START + second * SECOND, [second], table="Names", values={"Name": f"n{second}"}))


def said_at_start(replica: Replica, spool: SpoolMaker, name: str = "spanner") -> str:
    return contradiction_at_start(spool.spool, name, key_of(spool.spool, name), target_of(replica.sample))


def test_what_was_applied_before_is_named_at_the_start(
    database: MakeDatabase, dialect: str, spool: SpoolMaker, tmp_path: Path
) -> None:
    sample = database(dialect=dialect)
    sample.run_ddl(*ARTISTS[dialect])
    replica = Replica(sample, spool, mode="transactions")
    assert said_at_start(replica, spool) == ""
    names(spool, 1, 2, 3)
    replica.apply()

    consumers.record(spool.spool, "spanner", 1, now=START)  # as `sink.start` after the first epoch registers it
    said = said_at_start(replica, spool)
    at = format_rfc3339(START + 3 * SECOND)
    assert f"has the changes up to epoch 3, committed up to {at}, of sink spanner" in said
    assert "does not know of it: the sink continues after that epoch, and not with epoch 2" in said
    assert f"delete the row '{spool.spool_id}/spanner' of spanner_cdc_progress" in said
    assert said_at_start(replica, spool, "other") == "", "it has another name"

    StartedBatches(spool.spool, "spanner").begin(StartedBatch(first=1, last=3, pinned="options"), done=0)
    assert said_at_start(replica, spool) == "", "it was killed in its first micro-batch"
    consumers.forget(spool.spool, "spanner")
    consumers.record(spool.spool, "spanner", 3, now=START, at=spool.spool.manifest(3).identity)
    assert said_at_start(replica, spool) == ""

    another = SpoolMaker(tmp_path / "another")
    said = said_at_start(replica, another)
    begins = format_rfc3339(START - 1)
    assert f"has the changes up to {at} of a sink spanner of another spool" in said
    assert f"committed after {begins} up to {at} is applied once more, over later states" in said
    write_start(another.spool, "spanner", SinkStart(requested="now", epoch=9, after=START + 9 * SECOND))
    later = format_rfc3339(START + 9 * SECOND)
    assert said_at_start(replica, another).endswith(f"after {at} up to {later} is missing")


def test_a_spool_that_was_put_back_is_refused_at_the_start(
    database: MakeDatabase, spool: SpoolMaker, tmp_path: Path
) -> None:
    sample = database()
    sample.run_ddl(*ARTISTS["googlesql"])
    replica = Replica(sample, spool)
    names(spool, 1)
    shutil.copytree(spool.path, tmp_path / "copy")
    names(spool, 2)
    replica.apply()
    shutil.rmtree(spool.path)
    shutil.move(tmp_path / "copy", spool.path)
    restored = SpoolMaker(spool.path, reopen=True)
    with pytest.raises(SpoolError, match=r"what the destination has applied ends with epoch 2.* is another copy"):
        said_at_start(replica, restored)
