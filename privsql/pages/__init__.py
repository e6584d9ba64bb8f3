"""Make pages for a browser: templates, one stylesheet, and charts as SVG, filled with values from elsewhere."""
