"""Configures Sphinx, which builds the pages of this directory into a site with search: `make docs`."""

from importlib.metadata import version as installed_version

project = "yunishard"
copyright = "the yunishard authors"  # noqa: A001 - Sphinx reads this name
release = installed_version("yunishard")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"

html_theme = "furo"
html_title = "yunishard"
html_copy_source = False
html_show_sourcelink = False
