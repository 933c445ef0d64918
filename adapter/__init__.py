"""What stands on the core for people: the command line and what it runs."""
