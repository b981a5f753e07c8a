"""Sphinx builds the site from these pages: `make docs`. Warnings are errors."""

from importlib.metadata import version as version_of

from sphinx.ext.napoleon import GoogleDocstring

project = "openworld"
author = "the openworld developers"
release = version_of("openworld")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon"]
exclude_patterns = ["_build", "_templates"]
templates_path = ["_templates"]
html_theme = "pydata_sphinx_theme"
html_title = "openworld"
html_theme_options = {"show_toc_level": 2, "navigation_with_keys": False, "secondary_sidebar_items": ["page-toc"]}
html_sidebars = {"index": []}
html_show_sourcelink = False
html_copy_source = False

myst_heading_anchors = 3
myst_links_external_new_tab = False

autosummary_generate = True
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
default_role = "code"  # docstrings mark code with single backticks
napoleon_use_ivar = True

# Napoleon reads "text: more text" under a field as a type. Our field docstrings are plain sentences.
GoogleDocstring._consume_inline_attribute = lambda docstring: ("", docstring._consume_to_end())
