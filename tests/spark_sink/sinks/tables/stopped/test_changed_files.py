"""Files of dead letters in a replay: no later one overtakes one that is saved meanwhile, and there may be many."""

from pathlib import Path

import pytest

from spark_sink.dead_letters_command import Replayed
from spark_sink.sinks.shared.dead_letters import DeadLetterFile, DeadLetters
from tests.spark_sink.sinks.tables.stopped.scene import Scene


def test_later_files_of_its_table_wait_for_a_file_that_is_changed_during_a_replay(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.deliver(1)
    scene.to.failing = {"Singers", "Albums"}
    for epoch in (2, 3, 4):
        scene.deliver(epoch)
    scene.to.failing.clear()
    edited = next(file for file in scene.store.files("Singers") if file.name.endswith("_0000000000000003"))

    def edit_before(store: DeadLetters, file: DeadLetterFile) -> object:
        if file.name == edited.name:
            path = Path(store.root, edited.path)
            path.write_bytes(path.read_bytes().replace(b'"reason":', b'"reason": '))
        return read(store, file)

    with monkeypatch.context() as patch:
        read = DeadLetters.read
        patch.setattr(DeadLetters, "read", edit_before)
        assert scene.replay() == Replayed(sent=4, changed=2)
    assert "4 dead letters accepted, 0 rejected again, 2 not written" in capsys.readouterr().out
    assert scene.to.epochs() == [1, 2]
    assert scene.to.epochs("Albums") == [1, 2, 3, 4]
    assert list(scene.stopped) == ["Singers"]
    assert scene.replay() == Replayed(sent=2)
    assert scene.to.epochs() == [1, 2, 3, 4]
    assert scene.stopped == {}
    assert scene.letters() == 0


@pytest.mark.parametrize("files", [1, 4])
def test_a_replay_does_not_search_the_store_for_each_file(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, files: int
) -> None:
    scene.to.failing = {"Singers"}
    for epoch in range(1, files + 1):
        scene.deliver(epoch)
    scene.to.failing.clear()
    searched: list[str] = []
    find = DeadLetters._found

    def found(store: DeadLetters, beginning: str = "") -> object:
        searched.append(beginning)
        return find(store, beginning)

    monkeypatch.setattr(DeadLetters, "_found", found)
    assert scene.replay() == Replayed(sent=files)
    assert len(searched) == 5
