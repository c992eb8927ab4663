"""Sphinx configuration (``make docs``). Neither the build nor the pages load anything remote."""

from __future__ import annotations

import html
import logging
import os
from importlib.metadata import version as version_of
from typing import Any

import matplotlib
from docutils import nodes
from latex2mathml.converter import convert

matplotlib.use("Agg")
# the example with a lost worker prints a message itself
os.environ.setdefault("DASK_LOGGING__DISTRIBUTED", "error")
logging.getLogger("margrave").setLevel(logging.ERROR)

project = "margrave"
author = "the margrave developers"
version = release = version_of("margrave")
extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "gallery/**/*.md5", "gallery/**/*.py", "gallery/**/*.ipynb"]
nitpicky = True
show_warning_types = True

# --- pages ---------------------------------------------------------------------------------------

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
suppress_warnings = ["config.cache"]  # the gallery's settings contain functions

html_theme = "furo"
html_title = f"margrave {release}"
html_static_path = ["_static"]
html_css_files = ["tables.css"]
html_show_copyright = False
html_copy_source = False
html_math_renderer = "mathml"
html_theme_options = {"navigation_with_keys": True}

# --- the reference -------------------------------------------------------------------------------

autosummary_generate = True
autodoc_typehints = "none"  # the docstrings say more
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "inherited-members": True}
numpydoc_show_class_members = False
templates_path = ["_templates"]
# other packages, whose inventories are not downloaded
nitpick_ignore_regex = [
    (r"py:.*", r"(sklearn|numpy|scipy|matplotlib|dask|distributed|joblib)\..*"),
]


def _is_foreign(app: Any, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Skip the members that estimators inherit from scikit-learn, which documents them itself."""
    module = getattr(getattr(obj, "fget", obj), "__module__", None) or ""
    request = name.startswith("set_") and name.endswith("_request")
    return True if request or module.startswith("sklearn.") else None


# --- examples ------------------------------------------------------------------------------------

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$",
    "within_subsection_order": "ExampleTitleSortKey",
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_memory": False,
    "abort_on_example_error": False,
    "only_warn_on_example_error": True,  # -W turns it into an error after all examples have run
    "write_computation_times": False,
    "reset_modules": ("matplotlib",),
}

# --- formulas ------------------------------------------------------------------------------------


def _mathml(formula: str, display: str = "inline") -> str:
    return convert(formula.replace("\n", " ").replace(r"^\top", "\u2032"), display=display)


def _inline(writer: Any, node: nodes.math) -> None:
    writer.body.append(_mathml(node.astext()))
    raise nodes.SkipNode


def _block(writer: Any, node: nodes.math_block) -> None:
    formula = _mathml(node.astext(), "block")
    writer.body.append(f'<div class="math" title="{html.escape(node.astext())}">{formula}</div>\n')
    raise nodes.SkipNode


def setup(app: Any) -> None:
    """Render formulas as MathML, which browsers display without a script."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    app.connect("autodoc-skip-member", _is_foreign)
