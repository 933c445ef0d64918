"""Writing SQL: the text of a syntax tree, which is read as the same tree again."""

from typing import ClassVar

from sqlglot import exp
from sqlglot.generators.spark import SparkGenerator

from controller.sql.names import SPARK

#: Syntax for which the dialect's own generator writes something else: it knows no QUALIFY, and takes percentiles for
#: approximate ones.
_AS_READ = (exp.Select, exp.WithinGroup, exp.PercentileCont)


class _Faithful(SparkGenerator):
    TRANSFORMS: ClassVar = {
        **{kind: write for kind, write in SparkGenerator.TRANSFORMS.items() if kind not in _AS_READ},
        # As a difference of dates it would have another type.
        exp.UnixDate: lambda self, node: self.func("UNIX_DATE", node.this),
    }


def spark_text(tree: exp.Expr) -> str:
    """The text of a query or an expression, in one layout and without comments."""
    lists = [node for node in tree.find_all(exp.Any, exp.All) if isinstance(node.this, exp.Tuple)]
    if any(len(node.this.expressions) == 1 for node in lists):
        tree = tree.copy()
        for node in tree.find_all(exp.Any, exp.All):
            # A list of one is read again as something in parentheses.
            if isinstance(node.this, exp.Tuple) and len(node.this.expressions) == 1:
                node.this.replace(exp.Paren(this=node.this.expressions[0].copy()))
    return str(_Faithful(dialect=SPARK, comments=False).generate(tree))
