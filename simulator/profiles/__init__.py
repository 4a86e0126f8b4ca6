"""Latency profiles shipped with the simulator, one YAML file each (`simulator.profile` reads them)."""
