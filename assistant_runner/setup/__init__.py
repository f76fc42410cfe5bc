"""Assistant files: load, plan, apply, import, destroy, lock."""
