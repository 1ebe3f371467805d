"""A test's own certificate authority, made with the openssl program; it vouches for a server and for a client."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

DAYS = "2"


@dataclass(frozen=True)
class Certificates:
    """Paths of what was made."""

    folder: Path

    @property
    def authority(self) -> str:
        """Certificate of the authority."""
        return str(self.folder / "ca.crt")

    def certificate(self, name: str) -> str:
        """Certificate of `server` or `client`."""
        return str(self.folder / f"{name}.crt")

    def key(self, name: str) -> str:
        """Its private key."""
        return str(self.folder / f"{name}.key")

    def server_options(self, port: int, *, ask_clients: bool) -> dict[str, str]:
        """Directives of a server that speaks TLS on this port; it may ask for a client's certificate."""
        return {
            "tls-port": str(port),
            "tls-cert-file": self.certificate("server"),
            "tls-key-file": self.key("server"),
            "tls-ca-cert-file": self.authority,
            "tls-auth-clients": "yes" if ask_clients else "no",
        }


def make_certificates(folder: Path) -> Certificates:
    """Make an authority, and a certificate for 127.0.0.1 and one for a client that it vouches for."""
    made = Certificates(folder)
    _openssl(folder, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", DAYS,
             "-subj", "/CN=test authority", "-keyout", "ca.key", "-out", "ca.crt")  # fmt: skip
    for name in ("server", "client"):
        _openssl(folder, "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                 "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")  # fmt: skip
        (folder / f"{name}.ext").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
        _openssl(folder, "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial",
                 "-days", DAYS, "-extfile", f"{name}.ext", "-out", f"{name}.crt")  # fmt: skip
    return made


def _openssl(folder: Path, *words: str) -> None:
    done = subprocess.run(["openssl", *words], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
