"""A run and what becomes of it: planned cells, the referee, rows, doubts, reports, verification and estimates."""
