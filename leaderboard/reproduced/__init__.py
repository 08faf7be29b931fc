"""The paper's tables and figures made again from stored results, beside the paper's own numbers."""
