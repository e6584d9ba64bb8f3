"""What a browser shows: templates, one stylesheet, pictures as SVG. Takes values, and asks nothing itself."""
