"""Usage: the ledger of finished requests, its totals, and how long both are kept."""
