"""The file sink: Datastream's files on disk or in Cloud Storage."""
