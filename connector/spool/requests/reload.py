"""The request to read the configuration again, and the daemon's answer: options and outcomes, no option's value.

``reload.json`` is written by ``spanner-cdc reload``; the daemon writes ``reloaded.json`` and then deletes the request.
A command that gives up deletes its request, too. One that a killed daemon has left is answered by the next one, which
has read the file anyway.
"""

from secrets import token_hex

from pydantic import Field, ValidationError

from connector.spool.manifest import Document, Timestamp
from connector.spool.reading import Spool, to_json
from connector.spool.storage.store import contents

_REQUEST, _ANSWER = "reload.json", "reloaded.json"


class ReloadRequest(Document):
    """A request to reload.

    Attributes:
        id: of the request; empty if it cannot be understood.
        requested: when it was made, nanoseconds since 1970.
    """

    id: str
    requested: Timestamp


class ReloadAnswer(Document):
    """The daemon's answer to a request.

    Attributes:
        request: the request's id.
        answered: when, nanoseconds since 1970.
        config: the file that was read.
        options: the outcome of each option that differed, by its name.
        applied: whether all of these took effect; else none did.
        after: what was committed after this timestamp is read with them, nanoseconds since 1970; 0 if reading does not
            depend on them.
        warnings: what users should know.
        faults: those of an invalid configuration, of which nothing was applied.
    """

    request: str
    answered: Timestamp
    config: str
    options: dict[str, str] = Field(default_factory=dict)
    applied: bool = False
    after: Timestamp = 0
    warnings: list[str] = Field(default_factory=list)
    faults: list[str] = Field(default_factory=list)


def reload_request_of(spool: Spool) -> ReloadRequest | None:
    """The request that waits for an answer; None if there is none.

    Raises:
        SpoolError: it cannot be read.
    """
    data = contents(spool.storage, _REQUEST)
    return None if data is None else _request(data)


def _request(data: bytes) -> ReloadRequest:
    try:
        return ReloadRequest.model_validate_json(data)
    except ValidationError:  # of a later version
        return ReloadRequest(id="", requested=0)


def request_reload(spool: Spool, now: int) -> ReloadRequest:
    """Requests a reload, in place of a request that waits: the answer to the newest one holds for both.

    Raises:
        SpoolError: it cannot be written.
    """
    request = ReloadRequest(id=token_hex(8), requested=now)
    spool.storage.replace(_REQUEST, to_json(request))
    return request


def withdraw_reload(spool: Spool, request: ReloadRequest) -> None:
    """Deletes a request, unless another one has replaced it.

    Raises:
        SpoolError: it cannot be deleted.
    """
    try:
        data, version = spool.storage.read_version(_REQUEST)
    except FileNotFoundError:
        return
    if _request(data).id == request.id:
        spool.storage.delete_version(_REQUEST, version)


def reload_answer_of(spool: Spool) -> ReloadAnswer | None:
    """The newest answer; None if there is none that can be understood.

    Raises:
        SpoolError: it cannot be read.
    """
    return spool.find_valid(_ANSWER, ReloadAnswer)


def answer_reload(spool: Spool, request: ReloadRequest, answer: ReloadAnswer) -> None:
    """Writes the answer to a request, which it deletes then; the caller holds the spool's lock.

    Raises:
        SpoolError: it cannot be written.
    """
    spool.storage.replace(_ANSWER, to_json(answer))
    withdraw_reload(spool, request)
