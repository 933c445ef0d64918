"""Steadiness: functions that would give another answer another time are refused.

A view is maintained by computing changes from changes, on every replica for itself. That is right only if the same
rows always give the same answer, whoever computes it and when.
"""

from sqlglot import exp

from controller.sql.names import shown
from controller.sql.refusals import SqlText
from controller.sql.spark_functions import UNSTEADY
from reconcile.errors import InvalidRequest


def refuse_unsteady(sql: SqlText, tree: exp.Expr) -> None:
    """Refuses a query or an expression that calls a function of these."""
    for node in tree.find_all(exp.Func):
        names = {node.name.lower()} if isinstance(node, exp.Anonymous) else {name.lower() for name in node.sql_names()}
        if names & UNSTEADY or (
            isinstance(node, exp.UnixSeconds | exp.TimeToUnix | exp.StrToUnix) and _no_argument(node)
        ):
            hint = "store the value in a column, and use that"
            raise _placed(sql, node, f"{_called(sql, node)} gives another answer each time it is asked", hint)


def _no_argument(node: exp.Expr) -> bool:
    """``unix_timestamp()`` is the present, ``unix_timestamp(t)`` is not."""
    return node.this is None or isinstance(node.this, exp.CurrentTimestamp)


def _called(sql: SqlText, node: exp.Func) -> str:
    start, end = node.meta.get("start"), node.meta.get("end")
    if isinstance(start, int) and isinstance(end, int):
        return shown(sql.text[start : end + 1])
    return shown(node.sql_name().lower())


def _placed(sql: SqlText, node: exp.Func, message: str, hint: str) -> InvalidRequest:
    if "start" in node.meta or node.find(exp.Identifier) is not None:
        return sql.refusal(node, message, hint=hint)
    # Without parentheses the parser does not mark where a call stands; its name does not occur in many other ways.
    place = sql.text.lower().find(node.sql_name().lower())
    return sql.refusal(place if place >= 0 else node, message, hint=hint)
