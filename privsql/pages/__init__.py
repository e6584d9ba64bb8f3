"""Pages for a browser: templates, one stylesheet, charts as SVG, filled with values from other rooms."""
