"""Reasons: what delta-rs says went wrong, in one plain line."""

import re

#: Colours for a terminal, and the lines and arrows of its tree of causes.
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_BETWEEN = re.compile(r"\s*(?:↳|\n)\s*")


def reason(error: BaseException) -> str:
    """The text of an error, its causes one after the other."""
    return _BETWEEN.sub(": ", _COLOURS.sub("", str(error)).strip()).replace(": : ", ": ")
