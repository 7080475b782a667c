"""The demo: replicates a workload on an emulator into files, and compares commits with deliveries."""
