"""Run a SQL script on Spark: the dozen lines that `pipeline.sql` needs, with nothing of ours.

python run_sql.py SCRIPT [name=value...] [--conf=key=value...]; `${name}` in it is the value.
"""

import string
import sys
from pathlib import Path

from pyspark.sql import SparkSession

arguments = sys.argv[2:]
confs = [each.removeprefix("--conf=") for each in arguments if each.startswith("--conf=")]
names = dict(each.split("=", 1) for each in arguments if not each.startswith("--conf="))
lines = Path(sys.argv[1]).read_text().splitlines()
text = "\n".join(line for line in lines if not line.lstrip().startswith("--"))
builder = SparkSession.builder.appName("plain SQL")
for conf in confs:
    builder = builder.config(*conf.split("=", 1))
spark = builder.getOrCreate()
for statement in string.Template(text).substitute(names).split(";"):
    if statement.strip():
        spark.sql(statement).collect()
spark.stop()
