"""The first tables of the store, with the one row of ``reign`` that every transaction locks."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

#: Spelled out here rather than taken from the program: this revision stays what it is when the tables move on.
NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    reign = op.create_table(
        "reign",
        sa.Column("one", sa.Integer(), sa.CheckConstraint("one = 1", name="reign_is_one_row"), nullable=False),
        sa.Column("epoch", NUMBER, nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("next_seqno", NUMBER, nullable=False),
        sa.Column("beats", NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("one"),
    )
    op.bulk_insert(reign, [{"one": 1, "epoch": 0, "holder": "", "next_seqno": 1, "beats": 0}])
    op.create_table(
        "meta",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("key"),
    )
    _create_logs()
    _create_catalog()
    _create_numbers()


def _create_logs() -> None:
    op.create_table(
        "command_log",
        sa.Column("seqno", NUMBER, primary_key=True, autoincrement=False),
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("epoch", NUMBER, nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
    )
    op.create_table(
        "command_log_base",
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("place", NUMBER, nullable=False),
        sa.Column("through", NUMBER, nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "channel", "place"),
    )
    op.create_table(
        "replies",
        sa.Column("number", NUMBER, primary_key=True, autoincrement=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("request_digest", sa.LargeBinary(), nullable=False),
        sa.Column("reply", sa.LargeBinary(), nullable=False),
        sa.UniqueConstraint("key"),
    )


def _create_catalog() -> None:
    op.create_table(
        "catalog",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("definition", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
    )
    op.create_table(
        "clusters",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("definition", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "replicas",
        sa.Column("replica", NUMBER, primary_key=True, autoincrement=False),
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("definition", sa.Text(), nullable=False),
    )


def _create_numbers() -> None:
    op.create_table(
        "writer_epochs",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("epoch", NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "steps",
        sa.Column("one", sa.Integer(), sa.CheckConstraint("one = 1", name="steps_is_one_row"), nullable=False),
        sa.Column("step", NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("one"),
    )
    op.create_table(
        "counters",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("next", NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
