"""The long parts of the tests, which ``.ci/run`` leaves out."""
