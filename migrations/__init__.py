"""Migrations of the controller's database, one module for each revision."""
