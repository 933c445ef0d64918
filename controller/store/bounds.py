"""Bounds of the store; nothing in it grows or waits without one of these."""

from reconcile.limits import MESSAGE_BYTES_MAX

#: Remembered replies; older ones are forgotten in the transaction that adds a newer one.
REPLIES_MAX = 10_000
#: Statements that wait for the disk; beyond it ``commit`` itself waits.
STATEMENTS_WAITING_MAX = 20_000
#: Changes in one database transaction; a larger single statement still goes alone in one.
GROUP_CHANGES_MAX = 10_000
#: One body, reply, digest or text of a change. Leaves a command room for its encoding.
FIELD_BYTES_MAX = 4 * MESSAGE_BYTES_MAX
#: Integers in both databases are signed 64-bit.
NUMBER_MAX = 2**63 - 1
#: How long a holder of the data folder may take to end after SIGTERM, before SIGKILL.
TAKE_OVER_TERM_S = 5.0
#: How long after that its lock may take to be released.
TAKE_OVER_KILL_S = 5.0
#: How often a take-over looks whether the lock is free.
TAKE_OVER_POLL_S = 0.02
#: A transaction of a stopped controller is ended by PostgreSQL after this, so that a successor is not held up.
TRANSACTION_IDLE_MS = 10_000
#: How long a successor waits for a lock; longer than the bound above.
LOCK_WAIT_MS = 30_000
#: How long connecting to PostgreSQL may take.
CONNECT_S = 10
