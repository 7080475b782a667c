"""The states of a stream: how a daemon records them, pauses and resumes; what `status` reports."""
