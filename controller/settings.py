"""Settings: the times and sizes that an operator may choose."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All have defaults that suit one machine."""

    #: How often each side of a session shows that it lives, and how long the other may be silent.
    heartbeat_ms: int = 500
    heartbeat_deadline_ms: int = 3_000
    #: How long a replica may take to greet.
    greeting_ms: int = 5_000
    #: Between attempts to reach a replica.
    reconnect_ms_min: int = 200
    reconnect_ms_max: int = 2_000
    #: Records over all sources that open a step, how long the first of them waits for others, and how often a step
    #: is opened whatever happens; 0: never.
    step_records_max: int = 50_000
    step_linger_ms: int = 100
    step_tick_ms: int = 0
    #: Steps that a source may open by itself while no controller is there, and how often.
    grant_steps: int = 60
    grant_every_ms: int = 1_000
    #: How much history stays readable.
    retention_ms: int = 60_000
    #: How long a tail can be resumed after its client was lost, or the controller.
    resume_ms: int = 60_000
    #: How often sinces move.
    compaction_ms: int = 2_000
    #: How often the reign is shown to a standby.
    reign_heartbeat_ms: int = 1_000
    #: A call without a deadline of its own.
    timeout_ms: int = 30_000
    #: Log records of one channel after which it is reduced, unless more than half of them are live.
    log_tail_max: int = 10_000
