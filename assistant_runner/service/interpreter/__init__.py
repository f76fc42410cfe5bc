"""Where code of the code_interpreter tool runs."""
