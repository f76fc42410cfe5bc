"""What the planner knows: words, names, arguments, answers, summaries. Rules, no model."""
