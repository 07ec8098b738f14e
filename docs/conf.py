"""Configures Sphinx, which builds the pages of this directory into a site with search: `make docs`."""

from importlib.metadata import version as installed_version
from inspect import isfunction, unwrap
from typing import get_type_hints

from msgspec import Struct
from sphinx.application import Sphinx

import yunishard
from yunishard.common.rest.catalogue import TABLES
from yunishard.common.rest.columns import describe_kind

project = "yunishard"
copyright = "the yunishard authors"  # noqa: A001 - Sphinx reads this name
release = installed_version("yunishard")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
python_use_unqualified_type_names = True

html_theme = "furo"
html_title = "yunishard"
html_copy_source = False
html_show_sourcelink = False


CATALOGUE_AT = "<!-- catalogue:"


def add_catalogue(_: Sphinx, page: str, source: list[str]) -> None:
    """Add the columns and filters of all tables to the page about REST."""
    if page != "rest":
        return
    lines: list[str] = []
    for name, table in TABLES.items():
        lines += [
            "",
            f"### {name.capitalize()}",
            "",
            f"{table.summary}.",
            "",
            "| column | value | meaning |",
            "|---|---|---|",
        ]
        lines += [f"| `{one.name}` | {describe_kind(one.kind)} | {one.meaning} |" for one in table.columns]
        lines += ["", "| filter | meaning |", "|---|---|"]
        lines += [
            f"| `{one.name}` | {' '.join([one.meaning, *map('`{}`'.format, one.choices)])} |" for one in table.filters
        ]
        if table.actions:
            lines += ["", "| action | meaning |", "|---|---|"]
            path = f"POST /ws/v1/partition/{{p}}/{table.noun}/{{name}}"
            lines += [f"| `{path}/{one.name}` | {one.about.capitalize()}. {one.more} |" for one in table.actions]
    before, mark, after = source[0].partition(CATALOGUE_AT)
    assert mark, "docs/rest.md has no place for the catalogue"
    source[0] = f"{before}{chr(10).join(lines)}\n\n{mark}{after}"


def setup(app: Sphinx) -> None:
    """Add what follows from the code: the tables of REST, and types of fields and arguments without the bounds that
    `Annotated` adds to them.
    """
    app.connect("source-read", add_catalogue)
    for public in (getattr(yunishard, name) for name in yunishard.__all__):
        if isfunction(public) or (isinstance(public, type) and issubclass(public, Struct)):
            public.__annotations__ = unwrap(public).__annotations__ = get_type_hints(public)
