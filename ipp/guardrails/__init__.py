"""Rules on what goes into models and what comes out: compiled from documents, run over texts and bodies."""
