"""SimpleDBI's interface over Shoal: callers in many processes, batched into one model (docs/sessions.md)."""

EXIT_SIG = -1
