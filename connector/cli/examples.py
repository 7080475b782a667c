"""Examples of each command, which its help shows at its end."""

from collections.abc import Mapping

_NAMED = "--project P --instance I --database D"
_STREAM = f"{_NAMED} \\\n      --change-stream Everything"

EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "tail": (
        f"tail {_STREAM} --start -15m",
        f"tail {_STREAM} --table 'Sing*' | jq .payload",
    ),
    "serve": ("serve",),
    "discover": (f"discover {_NAMED}", f"discover {_NAMED} --json", "discover --config config.yaml"),
    "read": ("read config.yaml", "read config.yaml --log-format json"),
    "run": ("run config.yaml", "run config.yaml --sink-only"),
    "backfill": (
        "backfill config.yaml",
        "backfill config.yaml --table Singers --data-boost",
        "backfill config.yaml --stop Singers",
    ),
    "check": ("check config.yaml", "check config.yaml --for backfill"),
    "audit": ("audit config.yaml --sample 10%", "audit ./spool --from 2026-03-01T00:00:00Z"),
    "verify": ("verify config.yaml", "verify config.yaml --repair --dry-run --tables Singers"),
    "self-test": (
        "self-test --project P --instance I --without-spark",
        "self-test --project P --instance I --dataset D --json",
    ),
    "cuts": ("cuts config.yaml", "cuts config.yaml --json"),
    "spool": ("spool /var/lib/spanner-cdc/spool", "spool /var/lib/spanner-cdc/spool --forget files"),
    "status": ("status config.yaml --errors", "status config.yaml --objects"),
    "pause": ("pause config.yaml --wait",),
    "resume": ("resume config.yaml",),
    "reload": ("reload config.yaml",),
    "dead-letters": ("dead-letters list config.yaml", "dead-letters replay config.yaml --table Singers"),
    "dead-letters list": ("dead-letters list config.yaml", "dead-letters list config.yaml --json"),
    "dead-letters replay": ("dead-letters replay config.yaml", "dead-letters replay config.yaml --table Singers"),
}
"""By the command's name, each without ``spanner-cdc``; so short that a terminal of 80 columns does not wrap them."""


def epilog_of(name: str) -> str:
    """The end of a command's help."""
    lines = [f"  spanner-cdc {example}" for example in EXAMPLES[name]]
    return "\n".join(["\b", "Examples:", *lines])  # click joins and wraps the lines of other paragraphs
