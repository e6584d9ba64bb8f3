"""The mechanisms: frozen parameters and a search over counts. None imports an engine or another mechanism."""
