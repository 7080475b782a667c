"""Errors of the sinks, and the meaning of errors that Spark has wrapped; see also :mod:`connector.errors`."""

import re
from dataclasses import dataclass

from connector.errors import (
    FAILED_PERMANENTLY,
    TRANSIENT,
    ConfigurationError,
    SpannerCdcError,
    SpoolInUseError,
    StorageUnavailableError,
    UnreachableError,
)

_LINE = re.compile(r"(?:connector|spark_sink)\.errors\.(\w+): (.+)")
_TRACEBACK = "Traceback (most recent call last):"
_KIND = re.compile(r"^(?:\w+\.)*(\w+)(?::|$)", re.MULTILINE)
"""A line of a traceback that is not indented: the exception, after the stack."""

_WORDS = re.compile(r"^pyspark\.errors\.exceptions\.\w+\.(\w+): (.+)", re.MULTILINE)
"""An exception of the JVM in a traceback, with its own words: Spark wraps it so where foreachBatch raises it."""

_WORDS_OF_JAVA = re.compile(
    r"^py4j\.protocol\.Py4JJavaError: An error occurred while calling [^\n]*\n: (?:[\w$]+\.)+([\w$]+)(?:: (.+))?",
    re.MULTILINE,
)
"""The same of an exception that PySpark has no class for."""

_OF_VALUES = re.compile(r"SQLSTATE: 2[23]")
"""Of data exceptions and violated constraints, by the SQL standard: their texts have a row's values."""

_QUOTES_INPUT = re.compile(
    r"\b(\w*(?:NumberFormat|DateTime|DateTimeParse)Exception)\b|For input string|Invalid UUID string"
)
"""Of exceptions of Java that repeat the text which they could not read."""

_OF_OPTIONS = re.compile(r"(?:Size|Time) must be specified as ")
"""Of the same exceptions about an option of Spark."""

_CONDITION = re.compile(r"(?:\A|(?i:exception|error): )\[([A-Z][A-Z0-9_.]+)\]")
"""The condition by which Spark, Delta and Iceberg name an error, before its text, which may have values in brackets."""

_CALLING = "An error occurred while calling "
_JAVA_KIND = re.compile(r"^(?:: )?(?:[\w$]+\.)+([\w$]+)(?::|$)", re.MULTILINE)
"""The first exception of a text of the JVM."""

_PERMANENT_IN_JVM = frozenset(
    {
        "AccessControlException",
        "AccessDeniedException",
        "AnalysisException",
        "IllegalArgumentException",
        "ParentNotDirectoryException",
        "ParseException",
        "UnsupportedFileSystemException",
    }
)
_OF_STATEMENT = re.compile(r"(?:Analysis|IllegalArgument|Parse|TableFeature|UnsupportedOperation)Exception$")
_OF_METASTORE = re.compile(
    r"\b(?:Hive|Meta)Exception\b(?![\s\S]*\b(?:Invalid(?:Object|Operation)|AlreadyExists)Exception\b)[^\n]*"
)
"""Of a Hive metastore, but of what it refuses for one table."""

_OF_PLACE = re.compile(
    r"\b(?:CATALOG|SCHEMA|DATABASE|DATA_SOURCE)_NOT_FOUND\b|NoSuchNamespaceException|REQUIRES_SINGLE_PART_NAMESPACE"
    r"|DELTA_CONFIGURE_SPARK_SESSION|No FileSystem for scheme|UnsupportedFileSystemException"
    r"|SessionHiveMetaStoreClient|TTransportException"
)
"""Of errors that every table of a database, a folder, a catalog or a session has."""

_NO_RIGHTS = re.compile(r"Permission denied|java\.io\.IOException: mkdir of ")
_ACCESS = re.compile(r"Access(?:Control|Denied)Exception|\b403\b|[Ff]orbidden")
_BUGS = frozenset(
    {
        "AssertionError",
        "AttributeError",
        "ImportError",
        "IndexError",
        "KeyError",
        "ModuleNotFoundError",
        "NameError",
        "NotImplementedError",
        "TypeError",
        "UnboundLocalError",
    }
)
_TRANSIENT = re.compile(r"Python worker|java\.net\.\w+Exception|[Tt]imed out|TimeoutException|OutOfMemoryError")
"""Errors of an overloaded machine or of a network, whatever they are wrapped in."""

_OF_CATALOG = re.compile(r"\borg\.(?:apache\.iceberg|projectnessie)\.(?:[\w$]+\.)*([A-Z]\w*Exception)(?:: ([^\n]*))?")
_CAUSED_BY = re.compile(r"^\s*Caused by: (?:[\w$]+\.)+([\w$]+)(?:: ([^\n]*))?", re.MULTILINE)

_OF_SQL = "UncheckedSQLException"
"""Of a JDBC catalog, whatever its database says."""

_SILENT_CATALOG = frozenset(
    {
        "CommitStateUnknownException",
        "HttpClientException",
        "NessieBackendThrottledException",
        "NessieInternalServerException",
        "NessieUnavailableException",
        "RESTException",
        "ServiceFailureException",
        "ServiceUnavailableException",
        _OF_SQL,
    }
)
"""Of a catalog that does not answer, or fails."""

_OF_JDBC = (
    (
        re.compile(
            r"password authentication failed|no password was provided|Access denied for user (?![^\n]* to database )"
            r"|role \"[^\"\n]*\" (?:does not exist|is not permitted to log in)"
        ),
        (
            "the catalog's database does not accept the credentials: {}. Renew them in spark.config"
            " (spark.sql.catalog.NAME.jdbc.user and .jdbc.password)"
        ),
    ),
    (
        re.compile(r"No suitable driver"),
        "the session lacks the catalog's JDBC driver: {}. Add its jar to spark.config (spark.jars.packages)",
    ),
    (
        re.compile(r"database \"[^\"\n]*\" does not exist|Unknown database"),
        "the catalog's database does not exist: {}. Create it, or mend spark.config (spark.sql.catalog.NAME.uri)",
    ),
    (
        re.compile(
            r"permission denied for |\b[A-Z]+ command denied to user|Access denied for user [^\n]* to database "
        ),
        "the catalog's database forbids it: {}. Grant what it names",
    ),
)
"""The refusals of a JDBC catalog's database, and of its driver, that somebody has to mend; each with its line."""

_HIVE_SILENT = re.compile(r"(?:Unable to instantiate [\w.]*SessionHiveMetaStoreClient|\bTTransportException\b)[^\n]*")
"""Of a Hive metastore that cannot be reached, in an exception that Spark raises for every refusal."""

_OF_NETWORK = re.compile(r"(?:Connect|Connection|Host|SSL|Timeout|Socket|SQL)\w*Exception$")

_CREDENTIALS = re.compile(
    r"\b(?:Nessie)?NotAuthorizedException\b"
    r"|BadRequestException: Malformed request: (?:invalid_(?:client|grant|scope)|unauthorized_client)"
    r"|\bExpiredToken(?:Exception)?\b|security token included in the request is (?:expired|invalid)"
)
"""Of credentials that are wrong or have expired: of Iceberg's client, of Nessie's, of OAuth, and of AWS."""

_SECRETS = {False: "token, or .credential", True: "authentication.token"}
"""The options that have them; those of Nessie's client have another name."""

_FORBIDDEN = re.compile(
    r"org\.apache\.iceberg\.exceptions\.ForbiddenException"
    r"|\bNessieForbiddenException\b|\bNessieServiceException: Forbidden \(HTTP/403\)"
)

_OPTIONS_OF_URL = re.compile(r"(\bjdbc:[^\s?;]+)[?;]\S*")
"""They may have a password."""

_LONGEST = 300
"""Characters of a catalog's own text in a line."""


class SinkError(SpannerCdcError):
    """The destination cannot be written."""


class PermanentError(SinkError):
    """The destination cannot be written, and every restart meets the same error until its cause is mended."""

    exit_code = FAILED_PERMANENTLY


class DestinationUnavailableError(SinkError):
    """The destination has not answered for a while; a later attempt may succeed."""


class TableRefusedError(SinkError):
    """No event of a table can be written, whatever its values are."""


class TableError(SinkError):
    """One table cannot be written until it is repaired; the others can."""


class AlteredTableError(SinkError):
    """A table was altered at the destination while it was written; a new process stops it, and writes the others."""

    exit_code = TRANSIENT


class TableNameError(ConfigurationError):
    """The destination cannot have a table or a column of that name; other tables can be written."""


class CutError(SpannerCdcError):
    """Tables cannot be read as of a published cut."""


class EventFileError(SpannerCdcError):
    """Files of events cannot be read back."""


@dataclass(frozen=True, slots=True)
class CatalogFault:
    """An error of a catalog.

    Attributes:
        line: for people.
        is_permanent: whether every attempt meets it until somebody changes the credentials or the rights.
    """

    line: str
    is_permanent: bool


def is_own(error: BaseException) -> bool:
    """True if the connector or a sink raised the error, which Spark may have wrapped; otherwise it is Spark's own."""
    return isinstance(error, SpannerCdcError) or _LINE.search(text_of(error)) is not None


_UNANSWERED = frozenset(
    kind.__name__ for kind in (DestinationUnavailableError, StorageUnavailableError, UnreachableError)
)
_CODES = {
    PermanentError.__name__: FAILED_PERMANENTLY,
    AlteredTableError.__name__: TRANSIENT,
    SpoolInUseError.__name__: TRANSIENT,
    **dict.fromkeys(_UNANSWERED, TRANSIENT),
}
"""The exit codes of a sink's process; for a command, which nobody restarts, some are usual errors."""


def own_exit_code(error: BaseException) -> int | None:
    """The exit code of an error of the connector or a sink, which Spark may have wrapped, if its kind decides that."""
    return _CODES.get(_own_kind(error))


def is_unanswered(error: BaseException) -> bool:
    """True if a service has not answered for as long as it was asked; Spark may have wrapped the error."""
    return _own_kind(error) in _UNANSWERED


def _own_kind(error: BaseException) -> str:
    """The name of the connector's or a sink's error, even if Spark has wrapped it; else that of the exception."""
    found = _LINE.findall(text_of(error))
    return str(found[-1][0]) if found else type(error).__name__


def is_permanent(error: BaseException) -> bool:
    """True if an error of Spark, raised before a micro-batch was delivered, will be raised at each restart.

    An invalid configuration or checkpoint is permanent, and so are a bug, a value that cannot be written, and
    credentials that a catalog does not accept.
    """
    text = text_of(error)
    if _is_of_value(text):
        return True
    if (fault := catalog_fault(text)) is not None:
        return fault.is_permanent
    if _TRANSIENT.search(text):
        return False
    if _TRACEBACK in text:
        return _kind(text) in _BUGS or bool(_words(text))
    names = {kind.__name__ for kind in type(error).__mro__}
    cause = getattr(error, "_cause", None)
    if "StreamingQueryException" in names and isinstance(cause, BaseException):
        return is_permanent(cause)
    named = _JAVA_KIND.search(text)
    if named:
        names.add(named[1])
    return not names.isdisjoint(_PERMANENT_IN_JVM) or _NO_RIGHTS.search(text) is not None


def catalog_fault(text: str) -> CatalogFault | None:
    """The error of a catalog that an exception's text is about; None if it is about something else."""
    if found := _CREDENTIALS.search(text):
        return CatalogFault(
            f"the catalog does not accept the credentials, which may have expired: {_line_at(text, found.start())}."
            f" Renew them in spark.config (spark.sql.catalog.NAME.{_SECRETS[found[0].startswith('Nessie')]})",
            is_permanent=True,
        )
    if found := _FORBIDDEN.search(text):
        return CatalogFault(
            f"the catalog forbids it: {_line_at(text, found.start())}. Grant what it names", is_permanent=True
        )
    silent = next((one for one in _OF_CATALOG.finditer(text) if one[1] in _SILENT_CATALOG), None)
    if silent is None:
        if found := _HIVE_SILENT.search(text):
            return CatalogFault(f"the catalog does not answer: {_shown(found[0])}", is_permanent=False)
        if (found := _OF_METASTORE.search(text)) and not (_NO_RIGHTS.search(text) or _ACCESS.search(text)):
            return CatalogFault(f"the catalog's metastore fails: {_shown(found[0])}", is_permanent=False)
        return None
    if silent[1] == _OF_SQL and (line := _jdbc_line(text[silent.start() :])):
        return CatalogFault(line, is_permanent=True)
    causes = [
        f"{one[1]}: {one[2] or ''}" for one in _CAUSED_BY.finditer(text, silent.end()) if _OF_NETWORK.search(one[1])
    ]
    why = causes[0] if causes else f"{silent[1]}: {silent[2] or ''}"
    return CatalogFault(f"the catalog does not answer: {_shown(why)}", is_permanent=False)


def _jdbc_line(text: str) -> str:
    """The line for what the database of a JDBC catalog refuses; empty if it may take it later."""
    for pattern, line in _OF_JDBC:
        if found := pattern.search(text):
            return line.format(_shown(text[found.start() :].partition("\n")[0]))
    return ""


def _line_at(text: str, start: int) -> str:
    """The catalog's words, without the names of packages before them."""
    return _shown(text[start:].partition("\n")[0].rpartition("org.apache.iceberg.exceptions.")[2])


def _shown(words: str) -> str:
    return _OPTIONS_OF_URL.sub(r"\1", words)[:_LONGEST].strip().rstrip(".:")


def is_of_statement(error: BaseException) -> bool:
    """True if the JVM refuses what was asked of one table, whatever the rows are: the other tables can be written.

    Missing rights, and a database or a library that is not there, concern all tables.
    """
    text = text_of(error)
    of_all = (_TRANSIENT, _NO_RIGHTS, _OF_OPTIONS, _OF_PLACE, _OF_METASTORE)
    if _TRACEBACK in text or any(found.search(text) for found in of_all):
        return False
    names = [kind.__name__ for kind in type(error).__mro__]
    if named := _JAVA_KIND.search(text):
        names.append(named[1])
    return any(_OF_STATEMENT.search(name) for name in names) and not _ACCESS.search(text)


def is_of_value(error: BaseException) -> bool:
    """True if an error of Spark is about a row's value, which its text may hold."""
    return _is_of_value(text_of(error))


def _is_of_value(text: str) -> bool:
    if _LINE.search(text) or _OF_OPTIONS.search(text):
        return False
    return (_OF_VALUES.search(text) or _QUOTES_INPUT.search(text)) is not None


def condition(error: BaseException) -> str:
    """The condition by which Spark names an error about a value, without its text; else the type of the exception."""
    text = text_of(error)
    conditions: list[str] = _CONDITION.findall(text)
    kind = _QUOTES_INPUT.search(text)
    named = conditions[-1] if conditions and _OF_VALUES.search(text) else ""
    return named or (kind and kind[1]) or type(error).__name__


def clear_line(error: BaseException) -> str:
    """The line to print for an exception that Spark may have wrapped, with its traceback.

    It is the line of the connector's or a sink's error, otherwise the first line of the exception. Of a traceback it
    has the exception's type alone, and of an error about a value its condition: the text might hold a row's values.
    What the JVM has refused, whatever the rows are, is said in its own words.
    """
    if isinstance(error, SpannerCdcError):
        return str(error)
    text = text_of(error)
    wrapped: list[tuple[str, str]] = _LINE.findall(text)
    if wrapped:
        return wrapped[-1][1].strip()
    if _is_of_value(text):
        what = "a value cannot be written" if _OF_VALUES.search(text) else "a value of a row or an option is invalid"
        return f"{what}: {condition(error)}"
    if words := _words(text):
        return words
    if fault := catalog_fault(text):
        return fault.line
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [type(error).__name__]
    if lines[0].startswith(_CALLING) and lines[1:]:  # the exception follows
        lines = [lines[1].removeprefix(": "), *lines[2:]]
    if not lines[0].endswith(_TRACEBACK):
        return lines[0]
    return f"{lines[0].removesuffix(_TRACEBACK)}{_kind(text) or 'an error'}; run it with --verbose to see where"


def _words(text: str) -> str:
    """The JVM's text about a statement that it refuses, if that is the traceback's innermost error; else empty."""
    last = text.rpartition(_TRACEBACK)[2] if _TRACEBACK in text else ""
    for found in filter(None, (_WORDS.search(last), _WORDS_OF_JAVA.search(last))):
        if found[2] and (found[1] in _PERMANENT_IN_JVM or _OF_STATEMENT.search(found[1])):
            return str(found[2]).strip()
    return ""


def _kind(text: str) -> str:
    """The type of the exception of the last traceback in a text, which is the innermost."""
    last = text.rpartition(_TRACEBACK)[2].lstrip("\n")
    found = _WORDS_OF_JAVA.search(last) or _KIND.search(last)
    return found[1] if found else ""


def text_of(error: BaseException) -> str:
    """An exception's text; its type if the text is in the JVM, and that has died."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - whatever py4j raises
        return type(error).__name__
