"""`python -m assistant_runner`, and the console script."""

from assistant_runner.cli.main import main

if __name__ == "__main__":
    main()
