"""Sphinx configuration: `make docs`."""

import warnings
from importlib.metadata import version as installed_version
from importlib.util import find_spec
from pathlib import Path

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
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build"]
templates_path = ["_templates"]

myst_enable_extensions = [
    "dollarmath",
    "amsmath",
    "deflist",
    "attrs_inline",
    "colon_fence",
]
myst_heading_anchors = 3

# One file of MathJax that draws with paths of its own goes into the pages: no fonts, no network.
mathjax = (
    Path(find_spec("sphinx-mathjax-offline").origin).parent
    / "static"
    / "mathjax"
    / "tex-svg.js"
)
mathjax_path = mathjax.name

autosummary_generate = True
autodoc_typehints = "none"  # numpydoc sections carry the types
autodoc_member_order = "bysource"
numpydoc_show_class_members = False  # the class template lists the members itself
numpydoc_xref_param_type = False

#: Questions first, then what S does in training; a script that is not named here comes last.
TUTORIALS = [
    "plot_audit_classifier.py",
    "plot_merge_classes.py",
    "plot_ordered.py",
    "plot_ambiguous_rows.py",
    "plot_columns.py",
    "plot_images_own_network.py",
    "plot_own_trainer.py",
    "plot_own_probabilities.py",
    "plot_votes.py",
    "plot_label_smoothing.py",
    "plot_adaptive_sampling.py",
]


class TutorialOrder:
    """Sort key of the gallery."""

    def __init__(self, src_dir):
        self.src_dir = src_dir

    def __call__(self, filename):
        return TUTORIALS.index(filename) if filename in TUTORIALS else len(TUTORIALS)

    def __repr__(self):
        return f"<TutorialOrder: {TUTORIALS}>"


# The sort key is a class of this file, which Sphinx cannot keep between builds: it reads all pages
# again.
suppress_warnings = ["config.cache"]

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "within_subsection_order": TutorialOrder,
    "backreferences_dir": "reference/backreferences",
    "doc_module": ("collidescope",),
    "prefer_full_module": {r"collidescope"},
    "inspect_global_variables": False,
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_signature": False,
    # Scripts write into the gallery folder; nothing of theirs is a source.
    "copyfile_regex": r"(?!)",
    "min_reported_time": 1,
    "nested_sections": False,
    "remove_config_comments": True,
}
warnings.filterwarnings("ignore", message=".*FigureCanvasAgg is non-interactive.*")

html_theme = "pydata_sphinx_theme"
html_title = f"collidescope {release}"
html_theme_options = {
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc", "sg_download_links"],
    "header_links_before_dropdown": 7,
    "show_prev_next": True,
}
html_sidebars = {
    "start": [],
    "mathematics": [],
    "equations": [],
}  # pages without pages below them
html_show_sourcelink = False
html_static_path = ["_static", str(mathjax)]
html_css_files = ["custom.css"]


def skip_injected(app, what, name, obj, skip, options):
    """scikit-learn adds metadata-routing methods whose text refers to its own glossary."""
    return True if name.endswith("_request") or name == "get_metadata_routing" else None


def setup(app):
    app.connect("autodoc-skip-member", skip_injected)
