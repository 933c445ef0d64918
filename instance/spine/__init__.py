"""Arrangements as a spine of immutable, sorted Arrow runs, mapped from files and merged in the background."""
