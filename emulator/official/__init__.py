"""The official Spanner emulator, found or started."""
