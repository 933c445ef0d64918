"""Rules for the operators of an instance with Spark: its own, and those whose state is in spines."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from instance.arranged.places import passing_places
from instance.arranged.rendering import arranged_rules
from instance.memory.rendering import Await, Renderer, Rule, Tree
from instance.memory.rows import declared_format
from instance.spark.evaluation import Prepare
from instance.spark.functions import Functions, plan_functions
from instance.spark.operators import SparkLinear, SparkSql, SqlInput
from instance.spark.session import SparkHost


def spark_rules(host: SparkHost, scratch: Path, state: Path) -> Mapping[str, Rule]:
    """Renders ``sql`` and ``sql_linear`` on Spark, the others with state over spines.

    Under ``scratch``, which executors must see, lies what is shipped to Spark; under ``state`` the files of spines.
    """

    functions = Functions()

    def prepare(fields: Mapping[str, Any]) -> Prepare:
        called = plan_functions(fields.get("functions", ()))
        return lambda session: functions.register(session, called)

    def linear(renderer: Renderer, fields: Mapping[str, Any]) -> Tree:
        alias, input = fields["input"]
        tree = renderer.tree(input)
        format = declared_format(fields["columns"])
        operator = SparkLinear(host, scratch, alias=alias, text=fields["text"], format=format, prepare=prepare(fields))
        return Await(operator=operator, inputs=(tree,))

    def general(renderer: Renderer, fields: Mapping[str, Any]) -> Tree:
        trees = [renderer.tree(input) for _, input, _ in fields["inputs"]]
        inputs = [
            SqlInput(alias=alias, format=tree.format, key=key)
            for (alias, _, key), tree in zip(fields["inputs"], trees, strict=True)
        ]
        operator = SparkSql(
            host,
            scratch,
            inputs=inputs,
            text=fields["text"],
            format=declared_format(fields["columns"]),
            prepare=prepare(fields),
        )
        return Await(operator=operator, inputs=tuple(trees))

    return {**arranged_rules(passing_places(state)), "sql": general, "sql_linear": linear}
