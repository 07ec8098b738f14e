"""Certificates for tests, made with openssl."""

import subprocess
from pathlib import Path


def self_signed(folder: Path, name: str = "server") -> tuple[Path, Path]:
    """A certificate for 127.0.0.1, signed by itself, and its key."""
    cert, key = folder / f"{name}.pem", folder / f"{name}.key"
    command = (
        f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN={name} "
        f"-addext subjectAltName=IP:127.0.0.1,DNS:localhost -keyout {key} -out {cert}"
    )
    subprocess.run(command.split(), check=True, capture_output=True)
    return cert, key
