"""``plainsong certs``."""

import json
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path

import typer
from cryptography import x509
from typer.testing import CliRunner

from adapter.commands.certs import MEANINGS, certs
from plainsong.access import Role, Tokens
from plainsong.security import ClientTls, ServerTls

app = typer.Typer(pretty_exceptions_enable=False)
app.command("certs")(certs)


@app.callback()
def only_one() -> None:
    """So that ``certs`` stays a subcommand."""


def run(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["certs", *words])
    return result.exit_code, result.stdout, result.stderr


def test_all_files_are_made_and_nobody_else_can_read_them(tmp_path: Path) -> None:
    folder = tmp_path / "certs"

    code, out, _ = run(str(folder))

    made = {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}
    assert code == 0
    assert made == dict.fromkeys(MEANINGS, 0o600)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert [line.split("  ")[0] for line in out.splitlines()] == [str(folder / name) for name in MEANINGS]


def test_what_is_made_fits_together(tmp_path: Path) -> None:
    run(str(tmp_path))

    ServerTls.folder(tmp_path).credentials()
    ClientTls.folder(tmp_path).credentials()
    tokens = Tokens.read(tmp_path / "tokens")
    assert {role: tokens.role((tmp_path / f"{role}.token").read_text().strip()) for role in Role} == {
        role: role for role in Role
    }


def test_the_server_bears_all_its_names(tmp_path: Path) -> None:
    run(str(tmp_path), "--host", "db.example.org", "--host", "192.0.2.7", "--host", "localhost", "--days", "7")

    server = x509.load_pem_x509_certificate((tmp_path / "server.pem").read_bytes())
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost", "db.example.org"]
    assert names.get_values_for_type(x509.IPAddress) == [
        ip_address(address) for address in ("127.0.0.1", "::1", "192.0.2.7")
    ]
    assert (server.not_valid_after_utc - datetime.now(UTC)).days == 6


def test_what_is_there_is_not_replaced_unless_forced(tmp_path: Path) -> None:
    (tmp_path / "server.key").write_text("mine")

    refused, _, said = run(str(tmp_path))
    untouched = sorted(path.name for path in tmp_path.iterdir())
    forced, _, _ = run(str(tmp_path), "--force")

    assert (refused, untouched) == (2, ["server.key"])
    assert "server.key already; hint: --force" in said
    assert forced == 0
    assert (tmp_path / "server.key").read_text() != "mine"
    assert (tmp_path / "server.key").stat().st_mode & 0o777 == 0o600


def test_json_names_each_file(tmp_path: Path) -> None:
    _, out, _ = run("-o", "json", str(tmp_path))

    assert json.loads(out) == {name: str(tmp_path / name) for name in MEANINGS}


def test_a_host_that_is_none_is_refused(tmp_path: Path) -> None:
    for host in ("", "a" * 300, "..", "not a host"):
        code, _, said = run(str(tmp_path / "x"), "--host", host)

        assert code == 2
        assert "is neither a name nor an address" in said
    assert not (tmp_path / "x").exists()


def test_help_shows_examples() -> None:
    code, out, _ = run("--help")

    assert code == 0
    assert "Examples:" in out
    assert "--force" in out
