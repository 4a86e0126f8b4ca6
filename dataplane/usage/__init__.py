"""What was used: one record per finished request, kept on disk until Valkey has it."""
