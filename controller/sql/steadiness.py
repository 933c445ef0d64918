"""Steadiness: functions that would give another answer another time are refused.

A view is maintained by computing changes from changes, on every replica for itself. That is right only if the same
rows always give the same answer, whoever computes it and when.
"""

import re

from sqlglot import exp

from controller.sql.names import shown
from controller.sql.refusals import SqlText
from reconcile.errors import InvalidRequest

#: Functions whose answer depends on when, where or by whom they are called, or on chance.
_UNSTEADY = frozenset(
    re.findall(
        r"\w+",
        """now current_timestamp current_date current_time localtimestamp localtime curdate sysdate unix_timestamp
        current_timezone current_user session_user user current_catalog current_database current_schema version
        rand randn random randstr uniform uuid shuffle monotonically_increasing_id spark_partition_id
        input_file_name input_file_block_start input_file_block_length""",
    )
)
#: Aggregates whose answer depends on the order in which rows come.
_ORDER_BOUND = frozenset(
    re.findall(
        r"\w+",
        """first first_value last last_value any_value collect_list collect_set array_agg group_concat string_agg
        listagg mode""",
    )
)


def refuse_unsteady(sql: SqlText, tree: exp.Expr) -> None:
    """Refuses a query or an expression that calls a function of these."""
    for node in tree.find_all(exp.Func):
        names = {node.name.lower()} if isinstance(node, exp.Anonymous) else {name.lower() for name in node.sql_names()}
        if names & _UNSTEADY:
            hint = "store the value in a column, and use that"
            raise _placed(sql, node, f"{_called(sql, node)} gives another answer each time it is asked", hint)
        if names & _ORDER_BOUND:
            hint = "use min or max"
            raise _placed(sql, node, f"{_called(sql, node)} depends on the order of rows, which have none", hint)


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
