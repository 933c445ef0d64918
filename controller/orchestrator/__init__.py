"""Orchestrators: who starts the replicas that the catalog asks for, and says where they listen."""
