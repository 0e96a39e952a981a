"""Settings by name: published attacks, which of them suits what is told, and what runs beside it."""
