"""Old names of `common.config.validation`, until every importer uses the new ones."""

from common.config.validation import DEFAULT_TEXT, load
from common.config.validation import find_build_problems as load_problems
from common.config.validation import find_problems as check
from common.config.validation import normalise_with_checksum as loaded
from common.config.validation import validate as validated

__all__ = ["DEFAULT_TEXT", "check", "load", "load_problems", "loaded", "validated"]
