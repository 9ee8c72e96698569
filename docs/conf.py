"""Sphinx configuration: `make docs`."""

from importlib.metadata import version as installed_version

project = "collidescope"
author = "The Collidescope developers"
copyright = "2026, The Collidescope developers"
release = version = installed_version("collidescope")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "numpydoc",
]
exclude_patterns = ["_build"]
templates_path = ["_templates"]

myst_enable_extensions = ["dollarmath", "amsmath", "deflist"]
myst_heading_anchors = 3

autosummary_generate = True
autodoc_typehints = "none"  # numpydoc sections carry the types
autodoc_member_order = "bysource"
numpydoc_show_class_members = False  # the class template lists the members itself
numpydoc_xref_param_type = False

html_theme = "pydata_sphinx_theme"
html_title = f"collidescope {release}"
html_theme_options = {
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
}
html_show_sourcelink = False


def skip_injected(app, what, name, obj, skip, options):
    """scikit-learn adds metadata-routing methods whose text refers to its own glossary."""
    return True if name.endswith("_request") or name == "get_metadata_routing" else None


def setup(app):
    app.connect("autodoc-skip-member", skip_injected)
