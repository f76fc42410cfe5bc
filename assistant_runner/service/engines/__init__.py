"""What thinks for the service: Responses, Chat Completions, planner, script."""
