"""How alembic runs the revisions: on the connection it is given, inside the transaction it is given."""

from alembic import context
from sqlalchemy import Connection

from controller.store.tables import metadata


def run() -> None:
    """Runs them; there is no offline mode, and no other way in than ``controller.store.migrate``."""
    connection = context.config.attributes["connection"]
    assert isinstance(connection, Connection)
    context.configure(connection=connection, target_metadata=metadata)
    with context.begin_transaction():
        context.run_migrations()


run()
