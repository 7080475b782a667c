"""A configuration of the file sink over a spool in Cloud Storage."""

from pathlib import Path

from tests.spark_sink.spools import SpoolMaker


def config(folder: Path, spool: SpoolMaker, sink: str, *, spool_billed_to: str = "null", **options: object) -> str:
    path = folder / "config.yaml"
    given = "".join(f", {name}: {value}" for name, value in options.items())
    path.write_text(
        f"source: {{project: project, instance: instance, database: d, change_stream: Everything}}\n"
        f"spool: {{path: '{spool.path}', user_project: {spool_billed_to}}}\n"
        f"sink: {{path: '{sink}'{given}}}\n"
        f"spark: {{master: 'local[2]', checkpoint: {folder / 'checkpoint'}, trigger: 100ms,"
        f" config: {{spark.driver.memory: 768m}}}}\n"
    )
    return str(path)
