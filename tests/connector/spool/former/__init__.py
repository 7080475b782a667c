"""Spools of every version of manifests, as the programs of their time wrote them, are read and continued."""
