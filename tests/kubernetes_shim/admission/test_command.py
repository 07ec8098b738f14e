from pathlib import Path

import pytest

from yunishard.cli.main import CommandUnusable, build_parser
from yunishard.kubernetes_shim.admission.command import run_k8s_admission


@pytest.mark.parametrize(
    ("option", "text", "expected"),
    [
        ("--core-ca", None, "the file cannot be read: no such file or directory"),
        ("--core-ca", "no certificate", "there is no certificate in this file"),
        ("--core-token-file", None, "the file cannot be read: no such file or directory"),
    ],
)
def test_a_file_that_cannot_be_used_ends_the_command(
    option: str, text: str | None, expected: str, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    if text is not None:
        file.write_text(text)
    args = build_parser(["k8s-admission"]).parse_args(["k8s-admission", option, str(file)])
    with pytest.raises(CommandUnusable) as caught:
        run_k8s_admission(args)
    assert str(caught.value) == f"{file}: {expected}"
