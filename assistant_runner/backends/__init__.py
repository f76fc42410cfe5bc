"""Where threads live: any Assistants URL over HTTP, or our own service in this process."""
