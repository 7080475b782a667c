"""The destination of a configuration's sink, compared with what its spool has recorded."""

from connector.config.loading import Config
from connector.config.sinks import sink_type
from connector.spool.destinations import Destination, check_destination
from connector.spool.reading import Spool


def destination_of(config: Config) -> Destination:
    """The identity of the destination of the configuration's sink."""
    options = sink_type(config.sink.type).destination(config.sink, config.source, config.envelope)
    return Destination(type=config.sink.type, options=dict(options))


def check_kept(config: Config) -> None:
    """Checks that the sink may deliver the spool, which need not exist, to its destination.

    Raises:
        ConfigurationError: it may not: see :func:`connector.spool.destinations.check_destination`.
        SpoolError: the spool cannot be read.
    """
    check_destination(Spool.at(config.spool.path), config.sink.name, destination_of(config))
