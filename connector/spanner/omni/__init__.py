"""Connections to a server of Spanner Omni: certificates, tokens, and the reasons why one cannot be made."""
