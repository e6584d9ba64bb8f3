"""Which bucket sizes, and how many of each: what there is room for, by closed form, search or branch and bound."""
