"""``python -m tenure``: the command, also where its script is on no path."""

from tenure.cli.entry import main

if __name__ == "__main__":
    main()
