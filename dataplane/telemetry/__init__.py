"""How workers fare, once a second."""
