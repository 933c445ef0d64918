"""The source of a function that a program has at hand, if it stands by itself."""

import inspect
import textwrap
from collections.abc import Callable
from typing import Any

from plainsong.errors import InvalidRequest


def source_of(function: Callable[..., Any], name: str) -> str:
    """Python that defines ``name`` to be this function; refused if it could not run anywhere else."""
    if not inspect.isfunction(function) or function.__name__ == "<lambda>":
        raise InvalidRequest(f"{name} is not made by a def", hint="give a function that is, or its source")
    around = inspect.getclosurevars(function)
    if outside := sorted({*around.nonlocals, *around.globals}):
        raise InvalidRequest(
            f"{name} uses {', '.join(outside)} from around it",
            hint="import inside of the function, or give source that has all of it",
        )
    try:
        source = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError) as error:
        raise InvalidRequest(f"the source of {name} is not to be found", hint="give it as text") from error
    return source if function.__name__ == name else f"{source}\n{name} = {function.__name__}\n"
