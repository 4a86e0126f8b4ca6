"""Model servers that behave like vLLM from outside, many per process.

The engine (`engine`, `kv_cache`, `sequence`, `latency`) does no I/O and takes the time as an argument;
`runner` drives it on the event loop, `server` and the handlers speak HTTP, `app.Fleet` owns all replicas.
"""
