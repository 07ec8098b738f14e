"""Configures Sphinx, which builds the pages of this directory into a site with search: `make docs`."""

from importlib.metadata import version as installed_version
from inspect import isfunction, unwrap
from typing import get_type_hints

from msgspec import Struct
from sphinx.application import Sphinx

import yunishard

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


def setup(_: Sphinx) -> None:
    """Show the types of fields and arguments without the bounds that `Annotated` adds to them."""
    for public in (getattr(yunishard, name) for name in yunishard.__all__):
        if isfunction(public) or (isinstance(public, type) and issubclass(public, Struct)):
            public.__annotations__ = unwrap(public).__annotations__ = get_type_hints(public)
