"""The mechanisms: parameters, plans, releases, checks, answers and attacks of each. None imports another one."""
