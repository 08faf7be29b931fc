"""What engines are put together from: losses, norms, step rules, draws, the ledger of an attack."""
