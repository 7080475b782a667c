"""``python -m connector``: the same as the command ``spanner-cdc``."""

from connector.cli import main

main()
