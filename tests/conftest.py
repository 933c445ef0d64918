"""A real PostgreSQL, and a real object store, for whoever asks for it, one for the session."""

import os
import tempfile
from collections.abc import Iterator
from itertools import count

import psycopg
import pytest
from sqlalchemy import make_url

from tests.object_store import s3_bucket as s3_bucket
from tests.object_store import s3_endpoint as s3_endpoint
from tests.object_store import s3_place as s3_place

_numbers = count(1)


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URI of a server that lives as long as the session."""
    with pytest.MonkeyPatch.context() as patch:
        if "XDG_RUNTIME_DIR" not in os.environ:
            # pgserver keeps a lock file there, and warns when nobody says where that is.
            patch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("runtime")))
        from pgserver.postgres_server import get_server

    # Not below pytest's folder: a server that root starts runs as another user, and every pytest that starts meanwhile
    # closes that folder to others again.
    with tempfile.TemporaryDirectory(prefix="plainsong-postgres-", ignore_cleanup_errors=True) as folder:
        server = get_server(folder, cleanup_mode="delete")
        yield server.get_uri()
        server.cleanup()


@pytest.fixture
def postgres_url(postgres: str) -> str:
    """A new, empty database."""
    name = f"plainsong_{next(_numbers)}"
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return make_url(postgres).set(drivername="postgresql+psycopg", database=name).render_as_string(hide_password=False)
