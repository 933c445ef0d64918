"""Every bound of the system, in one place; nothing grows without one of these."""

#: One gRPC message; larger frames are split by the sender, a larger single command is refused.
MESSAGE_BYTES_MAX = 32 * 1024 * 1024
#: One dataflow's plan, refused before it is logged; leaves room for its frame in a message.
PLAN_BYTES_MAX = 1024 * 1024
#: Nesting of a plan tree; protobuf itself refuses messages nested deeper than 100.
PLAN_DEPTH_MAX = 64
#: Differing plan fields that a refusal to keep lists by name; the rest is counted.
PLAN_DIFFERENCES_MAX = 8
#: Commands in one frame.
FRAME_COMMANDS_MAX = 1_000
#: Commands that wait for one slow replica; beyond it that session ends and reconciliation catches up.
SESSION_QUEUE_MAX = 100_000
#: Sessions of which an instance remembers that it once accepted them, to say who superseded them.
SESSIONS_REMEMBERED_MAX = 1_024
#: Replicas of one cluster.
REPLICAS_MAX = 64
#: Batches of one tail that wait for a gap to be filled; beyond it the replica that sent the last is mistrusted.
TAIL_HELD_BATCHES_MAX = 1_024
#: A name that a user gives: collection, cluster, column.
NAME_CHARACTERS_MAX = 255
#: What waits for one session of an instance; beyond it the session ends.
OUTBOX_RESPONSES_MAX = 100_000
OUTBOX_BYTES_MAX = 256 * 1024 * 1024
#: The answer to one peek, the rows of one insert; more is refused with a hint. Leaves room for its frame.
RESULT_BYTES_MAX = 24 * 1024 * 1024
#: Rows in one message to a client.
CHUNK_BYTES_MAX = 1024 * 1024
#: The source of one function that a user registers; every plan that calls it carries it.
FUNCTION_BYTES_MAX = 64 * 1024
