"""python -m intarsia: the command, where it is not on the path."""

from intarsia.cli.app import main

if __name__ == "__main__":
    main()
