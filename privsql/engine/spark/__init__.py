"""Spark: the only package that talks to it. ``privsql.engine.open`` hands out what is made here.

pyspark 4 or later and Java 17 (the extra ``privsql[spark]``); tables cross the border as Arrow and never as pandas,
which would turn NULL into NaN.
"""
