"""Mode history: a row for each version of a row of Spanner, with the times from which and to which it was valid.

The versions of a key are a function of its events, sorted by change sequence number, whatever order they came in:

- The events of one commit timestamp make one version, the state after the last of them: nobody has seen the others.
- A version is valid from its commit timestamp to that of the next one or of the DELETE, without that instant.
- An UPDATE changes the columns that it names, and leaves the others as they were.
- An INSERT of a row that is there already with the same values makes no version. A row of a backfill is such an INSERT
  if its history is known.

A timestamp of a table has microseconds. The change sequence numbers of a version and of its end have all digits.
"""
