"""Where the service keeps its objects."""
