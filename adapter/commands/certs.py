"""``plainsong certs``: make certificates and tokens for development."""

import ipaddress
import json
import os
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from adapter.commands.script import Output
from plainsong.access import Grant, Role, new_token
from plainsong.security import CA_FILE, CLIENT_CERTIFICATE, CLIENT_KEY, SERVER_CERTIFICATE, SERVER_KEY

EXAMPLES = """
Examples:

  plainsong certs certs                          a CA, a server, two clients and two tokens for this machine

  plainsong certs certs --host db.example.org    the server is also reached under this name (or address)

  plainsong certs certs --days 7 --force         new ones in place of what is there

  plainsong certs -o json certs                  for machines

Then, with client certificates:

  plainsong.connect("127.0.0.1:6875", tls="certs")
"""

MADE, REFUSED = 0, 2
#: What every development server is reached by.
LOCAL = ("localhost", "127.0.0.1", "::1")
#: Clocks differ; a certificate made now must already hold on a machine that is a little behind.
CLOCK_SKEW = timedelta(minutes=5)

CA_KEY, READER_CERTIFICATE, READER_KEY, TOKENS_FILE = "ca.key", "read-only.pem", "read-only.key", "tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """A CA: who signs."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey
    until: datetime


def certs(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where to write; made if it is not there.")],
    host: Annotated[
        list[str] | None, typer.Option("--host", help="Another name or address of the server; may be repeated.")
    ] = None,
    days: Annotated[int, typer.Option("--days", help="How long they are valid.", min=1, max=3650)] = 365,
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there.")] = False,
    output: Annotated[Output, typer.Option("-o", "--output", help="What to print.")] = Output.TEXT,
) -> None:
    """Make a development CA with certificates for a server and two clients, and tokens.

    For development and tests: the key of the CA lies beside what it signed. Only you can read the files.
    Exits 2, with nothing written, if files are there already and --force was not given.
    """
    try:
        files = development_files([*LOCAL, *(host or [])], days, datetime.now(UTC))
        write_files(folder, files, force=force)
    except (FileExistsError, ValueError, OSError) as error:
        typer.echo(f"plainsong certs: {error}", err=True)
        raise typer.Exit(REFUSED) from error
    if output is Output.JSON:
        typer.echo(json.dumps({name: str(folder / name) for name in files}, indent=2))
        return
    for name in files:
        typer.echo(f"{folder / name}  {MEANINGS[name]}")


certs.__doc__ = f"{certs.__doc__}\n{EXAMPLES}"

MEANINGS = {
    CA_FILE: "the CA: whom everybody trusts",
    CA_KEY: "its key: keep it, or throw it away",
    SERVER_CERTIFICATE: "the controller's and the instances' certificate",
    SERVER_KEY: "its key",
    CLIENT_CERTIFICATE: "an operator's certificate; also the controller's towards its instances",
    CLIENT_KEY: "its key",
    READER_CERTIFICATE: "a certificate that may only read",
    READER_KEY: "its key",
    TOKENS_FILE: "the tokens that a server accepts: roles and digests",
    f"{Role.READ_ONLY}.token": "a token that may only read",
    f"{Role.OPERATOR}.token": "an operator's token",
}


def development_files(hosts: list[str], days: int, now: datetime) -> dict[str, bytes]:
    """All the files of a development folder, by name."""
    authority = _authority(now, now + timedelta(days=days))
    server, server_key = _server(authority, hosts, now)
    client, client_key = _client(authority, Role.OPERATOR, now)
    reader, reader_key = _client(authority, Role.READ_ONLY, now)
    tokens = {role: new_token() for role in Role}
    lines = [
        "# role, SHA-256 of the token, name",
        *(Grant.of(role, tokens[role], f"{role}-dev").line() for role in Role),
    ]
    return {
        CA_FILE: _pem(authority.certificate),
        CA_KEY: _key_pem(authority.key),
        SERVER_CERTIFICATE: _pem(server),
        SERVER_KEY: _key_pem(server_key),
        CLIENT_CERTIFICATE: _pem(client),
        CLIENT_KEY: _key_pem(client_key),
        READER_CERTIFICATE: _pem(reader),
        READER_KEY: _key_pem(reader_key),
        TOKENS_FILE: ("\n".join(lines) + "\n").encode(),
        **{f"{role}.token": f"{token}\n".encode() for role, token in tokens.items()},
    }


def write_files(folder: Path, files: dict[str, bytes], *, force: bool) -> None:
    """Writes all of them, readable by nobody else; none if one is there already and ``force`` is not given."""
    there = [name for name in files if (folder / name).exists() or (folder / name).is_symlink()]
    if there and not force:
        raise FileExistsError(f"{folder} has {', '.join(there)} already; hint: --force replaces them")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name, contents in files.items():
        path = folder / name
        path.unlink(missing_ok=True)
        # The mode is there from the beginning: nobody can open the file between its making and a chmod.
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(contents)


def _authority(now: datetime, until: datetime) -> Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Plainsong development CA")])
    usage = _usage(sign_certificates=True)
    certificate = (
        _dated(x509.CertificateBuilder(), name, now, until)
        .issuer_name(name)
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Authority(certificate=certificate, key=key, until=until)


def _server(
    authority: Authority, hosts: list[str], now: datetime
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    names = x509.SubjectAlternativeName([_host(host) for host in dict.fromkeys(hosts)])
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "plainsong")])
    return _signed(authority, subject, ExtendedKeyUsageOID.SERVER_AUTH, now, names)


def _client(authority: Authority, role: Role, now: datetime) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.COMMON_NAME, f"{role}-dev"),
            x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, str(role)),
        ]
    )
    return _signed(authority, subject, ExtendedKeyUsageOID.CLIENT_AUTH, now, None)


def _signed(
    authority: Authority,
    subject: x509.Name,
    purpose: x509.ObjectIdentifier,
    now: datetime,
    names: x509.SubjectAlternativeName | None,
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        _dated(x509.CertificateBuilder(), subject, now, authority.until)
        .issuer_name(authority.certificate.subject)
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(sign_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()), critical=False)
    )
    if names is not None:
        builder = builder.add_extension(names, critical=False)
    return builder.sign(authority.key, hashes.SHA256()), key


def _dated(
    builder: x509.CertificateBuilder, subject: x509.Name, now: datetime, until: datetime
) -> x509.CertificateBuilder:
    serial = x509.random_serial_number()
    return builder.subject_name(subject).serial_number(serial).not_valid_before(now - CLOCK_SKEW).not_valid_after(until)


def _usage(*, sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not sign_certificates,
        key_cert_sign=sign_certificates,
        crl_sign=sign_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        name = host.encode("idna").decode("ascii")
    except UnicodeError:
        name = ""
    if not re.fullmatch(r"[a-zA-Z0-9*][a-zA-Z0-9_.-]*", name):
        raise ValueError(f"{host!r} is neither a name nor an address of a host")
    return x509.DNSName(name)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
