"""Shards: the durable, append-only contents of collections."""
