"""Files, tables in memory and data sets by name -> rows."""
