"""The results, in SQL: schema, writing, and the queries that read them. Knows no plug-in and no TensorFlow."""
