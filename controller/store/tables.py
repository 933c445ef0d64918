"""The tables of the store, as the newest migration leaves them."""

from sqlalchemy import BigInteger, CheckConstraint, Column, Integer, LargeBinary, MetaData, Table, Text

metadata = MetaData()

#: 64 bits in both databases; in SQLite only the plain word INTEGER makes a primary key the row's own number.
_Number = BigInteger().with_variant(Integer(), "sqlite")

#: One row, locked and checked first by every transaction: whoever's epoch is not in it writes nothing.
reign = Table(
    "reign",
    metadata,
    Column("one", Integer, CheckConstraint("one = 1", name="reign_is_one_row"), primary_key=True, autoincrement=False),
    Column("epoch", _Number, nullable=False),
    Column("holder", Text, nullable=False),
    Column("next_seqno", _Number, nullable=False),
    # Counted, not timed: a standby judges by its own clock whether the count stands still.
    Column("beats", _Number, nullable=False),
)

#: What is set once: the deployment.
meta = Table("meta", metadata, Column("key", Text, primary_key=True), Column("value", Text, nullable=False))

#: Insert-only, but for compaction and dropped clusters. No index beside the key: it would halve the appends.
command_log = Table(
    "command_log",
    metadata,
    Column("seqno", _Number, primary_key=True, autoincrement=False),
    Column("cluster", Text, nullable=False),
    Column("channel", Text, nullable=False),
    Column("epoch", _Number, nullable=False),
    Column("body", LargeBinary, nullable=False),
)

#: The reduced form of a channel's records through ``through``; place 0 is a row without a command that bears it.
command_log_base = Table(
    "command_log_base",
    metadata,
    Column("cluster", Text, primary_key=True),
    Column("channel", Text, primary_key=True),
    Column("place", _Number, primary_key=True, autoincrement=False),
    Column("through", _Number, nullable=False),
    Column("body", LargeBinary, nullable=False),
)

catalog = Table(
    "catalog",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("kind", Text, nullable=False),
    Column("definition", Text, nullable=False),
)

#: Functions that users registered, as they are now; whoever uses one keeps the version it was made with.
functions = Table(
    "functions", metadata, Column("name", Text, primary_key=True), Column("definition", Text, nullable=False)
)

clusters = Table(
    "clusters", metadata, Column("name", Text, primary_key=True), Column("definition", Text, nullable=False)
)

replicas = Table(
    "replicas",
    metadata,
    Column("replica", _Number, primary_key=True, autoincrement=False),
    Column("cluster", Text, nullable=False),
    Column("definition", Text, nullable=False),
)

writer_epochs = Table(
    "writer_epochs", metadata, Column("id", Text, primary_key=True), Column("epoch", _Number, nullable=False)
)

#: At most one row: the newest opened step.
steps = Table(
    "steps",
    metadata,
    Column("one", Integer, CheckConstraint("one = 1", name="steps_is_one_row"), primary_key=True, autoincrement=False),
    Column("step", _Number, nullable=False),
)

#: The first number never allotted, by collection kind and for replicas.
counters = Table("counters", metadata, Column("name", Text, primary_key=True), Column("next", _Number, nullable=False))

replies = Table(
    "replies",
    metadata,
    Column("number", _Number, primary_key=True, autoincrement=False),
    Column("key", Text, nullable=False, unique=True),
    Column("request_digest", LargeBinary, nullable=False),
    Column("reply", LargeBinary, nullable=False),
)
