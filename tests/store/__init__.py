"""The durable store, in memory, on SQLite, on PostgreSQL."""
