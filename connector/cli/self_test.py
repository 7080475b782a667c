"""The command ``self-test``, which runs the sinks' own program in a process: the connector imports no sink."""

import sys

import click

from connector.cli import sink_commands as dead_letters
from connector.cli.common import common_options, server_options


@click.command("self-test")
@server_options
@click.option("--database", help="An existing database; default: one is made, and deleted.")
@click.option(
    "--dialect",
    type=click.Choice(["googlesql", "postgresql"]),
    default="googlesql",
    show_default=True,
    help="Dialect of the database that is made.",
)
@click.option("--dataset", help="Also replicate into this dataset of BigQuery, in each mode.")
@click.option("--bigquery-project", help="The dataset's project; default: that of --project.")
@click.option("--bucket", help="Also replicate into files below gs://BUCKET.")
@click.option("--endpoint", help="Regional or private endpoint of Spanner; of Spanner Omni the server's HOST:PORT.")
@click.option("--without-spark", is_flag=True, help="Run no sink: neither PySpark nor Java is needed.")
@click.option("--seed", type=int, help="Seed of the random values; default: a random one.")
@click.option("--modes", help="Modes of the BigQuery sink, separated by commas.", hidden=True)
@click.option("--bigquery-endpoint", help="An emulator's REST address.", hidden=True)
@click.option("--bigquery-grpc-endpoint", help="An emulator's address for rows.", hidden=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for support.")
@common_options
def self_test_command(*, tls: dict[str, str] | None, as_json: bool, without_spark: bool, **options: object) -> None:
    """Tries everything on a real Spanner, and deletes what it made.

    Makes a small database with change streams, writes, reads, replicates into each sink that is named, compares row by
    row, and prints what it saw of the services. The exit code is 1 if anything differs.
    """
    arguments = [f"--{name.replace('_', '-')}={value}" for name, value in options.items() if value is not None]
    arguments += [] if tls is None else ["--tls", *(f"--tls-{name}={path}" for name, path in tls.items())]
    arguments += ["--json"] if as_json else []
    arguments += ["--without-spark"] if without_spark else []
    sys.exit(dead_letters.run_module("spark_sink.self_test", arguments))
