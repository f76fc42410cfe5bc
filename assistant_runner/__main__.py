"""`python -m assistant_runner`, and the console script."""

import gc
import os


def main() -> None:
    """Run the command line; nothing is collected before its work begins (see cli/edge.py)."""
    gc.disable()
    # Pydantic looks for plugins in the metadata of every installed distribution before it makes its first
    # class. We need none; a value of the person who runs us is kept. Tools and MCP servers that are
    # processes do not see this: they get only the variables that are named for them.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    try:
        from assistant_runner.cli.main import main as command_line

        command_line()
    except KeyboardInterrupt:  # before the command line is there to catch it, or after it
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
