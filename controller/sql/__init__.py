"""SQL: what users write becomes plans that instances run."""

from controller.sql.compiler import compile_query
from controller.sql.explaining import explain
from controller.sql.expressions import compile_expression, compile_predicate
from controller.sql.names import compile_columns, validate_name
from controller.sql.refusals import NotYet
from controller.sql.relations import Catalog, Column, CompiledQuery, Ordering, Relation
from controller.sql.strategies import recomputed, refuse_recomputed
from controller.sql.user_functions import UserFunction, stored_function, user_function

__all__ = [
    "Catalog",
    "Column",
    "CompiledQuery",
    "NotYet",
    "Ordering",
    "Relation",
    "UserFunction",
    "compile_columns",
    "compile_expression",
    "compile_predicate",
    "compile_query",
    "explain",
    "recomputed",
    "refuse_recomputed",
    "stored_function",
    "user_function",
    "validate_name",
]
