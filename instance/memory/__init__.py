"""The memory runtime: incremental dataflows over Arrow, in process."""
