"""The pure core: every decision Plainsong makes, as values in and values out.

Nothing here reads a clock, opens a file, starts a thread or draws a random number; nothing depends on hash
order. Each machine is ``handle(event) -> actions`` and can restate its invariants with ``check()``; a thin shell
performs the actions in order and feeds back what happened as further events.

From the ground up: ``ids`` and ``frontiers``; what is computed (``plan_tree``, ``dataflow``, ``compatibility``)
and what is ingested (``sources``, ``updates``); what is said (``compute_protocol``, ``storage_protocol``,
``sessions``); what is alive (``live``, ``history``, ``uppers``); what an instance does about it (``plan``,
``reconciler``, ``storage_reconciler``); and what the controller makes of many voices (``merge``, ``partitions``,
``scheduling``).
"""
