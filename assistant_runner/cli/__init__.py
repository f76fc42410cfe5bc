"""Commands: read options, call one library function, render, return an exit status."""
