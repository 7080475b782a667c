"""Tests, and the campaigns among them."""

import os

# Spark's session forks to start its JVM. gRPC's fork handlers crash the child if the process has an open Spanner
# client. Without the handlers the child reaches its exec. gRPC reads this when it is imported.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
