"""Operators whose state is in spines: vectorised, restorable from files, at a cost that follows the change."""
