"""Promises of the SQL compiler."""
