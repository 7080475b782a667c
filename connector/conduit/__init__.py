"""A source connector for Conduit (https://conduit.io), as a plugin that Conduit starts: ``spanner-cdc serve``."""
