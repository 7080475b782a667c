"""The commands of ``spanner-cdc``, one file each."""
