"""Checks the documentation: the site builds without warnings, links lead somewhere, and examples are valid.

Sphinx checks every link between pages, with its anchor. The other tests cover what it does not read: README.md and
CONTRIBUTING.md, and the content of code blocks.
"""

import ast
import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from yunishard.cli.main import build_parser, main, parse_words

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:^ {4}.*\n)+", re.MULTILINE)


def blocks(page: Path, language: str) -> list[str]:
    """The fenced code blocks of a page in this language."""
    return [textwrap.dedent(code) for name, code in FENCE.findall(page.read_text()) if name == language]


@pytest.mark.timeout(300)
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-d", str(tmp_path / "cache")]
    command += ["-D", "html_theme=basic"]  # the theme of the site takes as long as all else, and checks nothing
    done = subprocess.run(
        [*command, "docs", str(tmp_path / "html")], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "html" / "searchindex.js").exists()


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_relative_links_lead_to_files(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_python_examples_compile() -> None:
    for page, name in zip(PAGES, NAMES, strict=True):
        for code in blocks(page, "python"):
            inside = f"match news:\n{textwrap.indent(code, '    ')}" if code.startswith("case ") else code
            compile(inside, name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_yaml_examples_are_valid_configurations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = [code for page in PAGES for code in blocks(page, "yaml") if "partitions:" in code]
    for number, code in enumerate(found):
        file = tmp_path / f"{number}.yaml"
        file.write_text(code)
        assert main(["validate", str(file)]) == 0, capsys.readouterr()
    assert found


COMMAND = re.compile(r"^ *(?:\$ )?(?:\.venv/bin/)?yunishard ([a-z].*)", re.MULTILINE)


def commands() -> list[tuple[str, str]]:
    """Each command line of yunishard in an indented block or a shell block, with its page."""
    found = []
    for page, name in zip(PAGES, NAMES, strict=True):
        text = page.read_text().replace("\\\n", " ")
        for block in [*INDENTED.findall(text), *(code for _, code in FENCE.findall(text))]:
            found += [(name, re.split(r" {2,}(?=\w)|[|>#]", line)[0]) for line in COMMAND.findall(block)]
    return found


@pytest.mark.parametrize(("page", "line"), commands())
def test_command_lines_are_accepted_by_the_parser(page: str, line: str) -> None:
    words = shlex.split(line)
    _, unknown, _ = parse_words(build_parser(words[:1]), words)
    assert unknown == []
