"""The self-test: runs the commands of ``spanner-cdc`` against a real Spanner, and compares what comes out."""
