"""The sizes at which a spine changes its ways, in one place so that tests can make everything happen small."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Only speed and memory depend on them."""

    #: Runs that together are no larger are merged at once, when they are inserted: cheaper than to tell anyone.
    at_once_rows: int = 4_096
    #: Runs at least as large are moved to a file.
    file_rows: int = 1 << 16
    #: About how many rows a piece of ``contents`` has at most.
    piece_rows: int = 1 << 17
    #: What a merge holds at once, unless there would be too many parts, but never more than so many bytes.
    part_rows: int = 1 << 21
    parts_max: int = 16
    part_bytes_max: int = 1 << 29


SIZES = Sizes()
