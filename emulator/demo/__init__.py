"""The demo: an emulator, a workload, the connector and the file sink, and a comparison of both ends."""
