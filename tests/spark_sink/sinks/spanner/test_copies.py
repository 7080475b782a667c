"""A spool that was put back from an older copy: what it sealed since is not skipped because of its numbers."""

import shutil

import pytest

from connector.core.records import DataChangeRecord
from connector.errors import SpoolError
from tests.integration.servers import MakeDatabase
from tests.spark_sink.sinks.spanner.applying import Replica
from tests.spark_sink.sinks.spanner.changes import NAMES, change
from tests.spark_sink.spools import SpoolMaker


def inserted(key: int) -> DataChangeRecord:
    return change(key, "S", {"Id": str(key)}, {"V": "x"}, columns=NAMES)


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
