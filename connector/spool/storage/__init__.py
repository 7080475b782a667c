"""The file store: files on a local disk or in Cloud Storage, which appear whole or not at all."""
