"""The subcommands of ``plainsong``, one file each."""
