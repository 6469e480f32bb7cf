"""A certificate that nobody vouches for but itself, made by openssl for the time of a test."""

import shutil
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

NAME = "engine.test"  # whose it is; nothing of that name can be reached


def missing() -> str:
    """Why there can be none; empty when there can."""
    return "" if shutil.which("openssl") else "openssl is not installed"


@dataclass(frozen=True)
class Certificate:
    """Two files."""

    certificate: Path
    key: Path

    @property
    def server(self) -> ssl.SSLContext:
        """For a server that shows it."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.certificate, self.key)
        return context


def make(folder: Path) -> Certificate:
    """One for NAME, good for two days."""
    made = Certificate(folder / "engine.pem", folder / "engine.key")
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-nodes", "-days", "2", "-subj", f"/CN={NAME}"),
            *("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-addext", f"subjectAltName=DNS:{NAME}"),
            *("-keyout", str(made.key), "-out", str(made.certificate)),
        ],
        check=True,
        capture_output=True,
    )
    return made
