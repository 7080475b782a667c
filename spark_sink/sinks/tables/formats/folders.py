"""Folders and files below a path of the sink, wherever the session's options say that they are."""

from py4j.java_gateway import JavaObject  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from spark_sink.errors import SinkError
from spark_sink.sinks.tables.formats.jvm import java_classes, java_session

_BETWEEN = "\0"
"""A character that no name has."""


class SparkFolders:
    """Files as Spark's own file systems have them."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm = java_classes(spark)
        self._options = java_session(spark).sessionState().newHadoopConf()

    def names(self, folder: str) -> list[str]:
        """The names in a folder, by as many calls of the JVM however many they are; none if there is no folder."""
        system, path = self._at(folder)
        if not system.exists(path):
            return []
        paths = self._jvm.org.apache.hadoop.fs.FileUtil.stat2Paths(system.listStatus(path))
        text = str(self._jvm.scala.collection.mutable.ArraySeq.make(paths).mkString(_BETWEEN))
        return [one.rpartition("/")[2] for one in text.split(_BETWEEN)] if text else []

    def read(self, file: str) -> bytes:
        """The content of a file."""
        system, path = self._at(file)
        stream = system.open(path)
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def put(self, folder: str, name: str, content: bytes) -> None:
        """Writes a file that appears whole.

        Raises:
            SinkError: there is one of that name.
        """
        system, written = self._at(f"{folder}/.{name}.tmp")
        stream = system.create(written, True)
        stream.write(bytearray(content))
        stream.close()
        self.move(f"{folder}/.{name}.tmp", f"{folder}/{name}")

    def move(self, file: str, to: str) -> None:
        """Gives a file its name.

        Raises:
            SinkError: it cannot be moved.
        """
        system, path = self._at(file)
        if not system.rename(path, self._at(to)[1]):
            raise SinkError(f"{file} cannot be moved to {to}", hint="Is there a file of that name that is not ours?")

    def delete(self, folder: str) -> None:
        """Removes a folder with what is in it."""
        system, path = self._at(folder)
        system.delete(path, True)

    def _at(self, name: str) -> tuple[JavaObject, JavaObject]:
        path = self._jvm.org.apache.hadoop.fs.Path(name)
        return path.getFileSystem(self._options), path
