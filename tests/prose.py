"""Prose linter: banned words in docs, docstrings, comments and texts, and banned names.

`python -m tests.prose PATH...` lists the findings below some paths, and without a path all of them. It fails if there
is any, as `make check` does.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.size import PACKAGES, ROOT, Function, SourceFile, source_files

NAME_THE_ACTOR: Final = "name the actor: the proxy, the RM, the caller, an operator"
NO_PERSON: Final = "a process is no person: it receives, sends, holds, reports, detects, stores"
PLAIN: Final = "use the plain word"

BANNED: Final[dict[str, str]] = {
    # Actors without a name
    r"who(?:m)?ever": NAME_THE_ACTOR,
    r"somebody|someone|nobody|anybody|everybody": NAME_THE_ACTOR,
    r"(?:one|those|him) who": NAME_THE_ACTOR,
    # Personification
    r"hears?|heard of": NO_PERSON,
    r"(?:is|are|was|were|be|been|being) (?:told|heard)": NO_PERSON,
    r"tells? (?:it|them|him|everyone|the)": NO_PERSON,
    r"knows?(?! how)|knew": NO_PERSON,
    r"forgets?|forgot|forgotten": f"{NO_PERSON}; discards",
    r"notic(?:es|ed)": f"{NO_PERSON}; detects",
    r"remembers|remembered": f"{NO_PERSON}; keeps, records",
    r"believes?|believed": NO_PERSON,
    r"says|said": f"{NO_PERSON}; states, reports",
    r"speaks|composure|puts? up with|obeys?": NO_PERSON,
    # Terms that the project has replaced
    r"people": "user, operator, viewer; authn and authz",
    r"nonsense|patience": "invalid messages, rate limit",
    r"foresight": "config preloading",
    r"truces?": "preemption cooldown",
    r"happenings?": "events",
    r"door|doorkeepers?": "ZAP authenticator, authn",
    r"shelf|shelves": "response cache, wait bucket",
    r"books": "state",
    r"rosters?|seats?": "registry, RM session, worker slot",
    r"fleet": "all nodes",
    r"line-?ups?": "node index",
    r"revivals?": "worker recovery",
    r"setbacks?": "guarantee deficit",
    r"doubts?|slips?": "warning",
    r"judge?ments?": "validation",
    r"presences?|pulses?": "liveness, heartbeat, keepalive",
    r"askers?": "requester",
    r"sights": "views",
    r"astray": "unknown partition",
    r"descents?": "queue traversal",
    r"strangers?": "unauthenticated peer",
    r"premises?": "preflight",
    # Archaic or translated turns of phrase
    r"(?:has|have|had|is|are|was|were|be) begun|begins? anew|began anew|anew": f"{PLAIN}: starts again, restarts",
    r"in vain": f"{PLAIN}: without effect, without success",
    r"for good": f"{PLAIN}: permanently",
    r"once and for all|of old|hardly meant|by chance|lest|whence|thereof|therein|whereupon|wherein|thus|hence": PLAIN,
    r"go(?:es)? on|went on": f"{PLAIN}: continues",
    r"mends?|mended|mending": f"{PLAIN}: recovers, repairs",
    r"nothing else to (?:say|do)": PLAIN,
    r"whatever it|what is left of": PLAIN,
}
"""Pattern (whole words, any case) to what to write instead."""

RIDDLE: Final = re.compile(r"(?:^|(?<=[.:;] ))(?:Who|What|Whose)\b[^.?!]*\.(?=\s|$)", re.MULTILINE)
"""A statement that starts with a question word: `What was written is read again.`"""

BANNED_NAMES: Final = frozenset(
    [
        *("admits", "admitted", "allowed", "announced", "answered", "asked", "begun", "called", "changed", "decided"),
        *("gave", "given", "gone", "heard", "held", "kept", "known", "lost", "made", "meant", "named", "noticed"),
        *("said", "sent", "settled", "shown", "spoken", "taken", "told", "tried", "understood", "wanted", "went"),
        "written",
    ]
)
"""Function names that are no verbs in the imperative. Properties and attributes are values and may have such names."""

BANNED_MODULES: Final = BANNED_NAMES | frozenset(
    [
        *("books", "door", "doubts", "facts", "fleet", "foresight", "happenings", "judgement", "keeping", "lasting"),
        *("life", "news", "patience", "premises", "presence", "revival", "roster", "shelf", "sights", "slips"),
        *("strangers", "truces", "util", "utils", "helpers", "misc", "base"),
    ]
)

_PATTERNS: Final = tuple(
    (re.compile(rf"\b(?:{words})\b".replace(" ", r"\s+"), re.IGNORECASE), advice) for words, advice in BANNED.items()
)
_ANY: Final = re.compile(rf"\b(?:{'|'.join(BANNED)})\b".replace(" ", r"\s+"), re.IGNORECASE)
"""Most texts have none of them, and one search is faster than that of each pattern."""

_CODE: Final = re.compile(r"```.*?```|`[^`\n]*`|https?://\S+|\{[^{}\n]*\}", re.DOTALL)


@dataclass(frozen=True)
class Finding:
    """A place that breaks a rule."""

    file: str
    line: int
    words: str
    advice: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: '{self.words}': {self.advice}"


def check_text(file: str, text: str, first_line: int = 1) -> Iterator[Finding]:
    """Banned words in one text; code between backticks, URLs and format fields are not prose."""
    text = _CODE.sub(lambda code: re.sub(r"[^\n]", " ", code[0]), text)
    for pattern, advice in _PATTERNS if _ANY.search(text) else ():
        for match in pattern.finditer(text):
            yield Finding(file, first_line + text.count("\n", 0, match.start()), " ".join(match[0].split()), advice)
    for match in RIDDLE.finditer(text):
        line = first_line + text.count("\n", 0, match.start())
        yield Finding(file, line, match[0].split("\n")[0][:40], "start with the subject, not with a question word")


def check_python(source: SourceFile) -> Iterator[Finding]:
    """Banned words in comments, docstrings and texts of at least two words; banned names."""
    if Path(source.name).stem in BANNED_MODULES:
        yield Finding(source.name, 1, Path(source.name).stem, "name the module for its subject, in a standard term")
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        if token.type == tokenize.COMMENT:
            yield from check_text(source.name, token.string.lstrip("#: "), token.start[0])
    for node in source.nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value.strip():
            yield from check_text(source.name, node.value, node.lineno)
        elif isinstance(node, Function) and node.name.lstrip("_") in BANNED_NAMES and not _is_property(node):
            yield Finding(source.name, node.lineno, node.name, "a function is named by a verb")


def _is_property(function: Function) -> bool:
    return any("property" in ast.unparse(decorator) for decorator in function.decorator_list)


def check_markdown(path: Path) -> Iterator[Finding]:
    """Banned words in a page of the docs, outside code."""
    yield from check_text(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))


def all_findings() -> list[Finding]:
    """Every finding in the shipped packages, the benchmarks, the examples and the docs."""
    pages = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    found = [finding for file in source_files(*PACKAGES, "examples") for finding in check_python(file)]
    return found + [finding for page in pages for finding in check_markdown(page)]


def main(paths: list[str]) -> int:
    """Print the findings below the given paths, or all of them; 1 if there is any."""
    found = [one for one in all_findings() if not paths or any(one.file.startswith(path) for path in paths)]
    sys.stdout.write("".join(f"{finding}\n" for finding in found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
