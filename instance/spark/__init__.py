"""The Spark side of an instance: its session, and what runs on it."""
