"""`python -m surgetank` is the `surgetank` command."""

from surgetank.control.cli import main

if __name__ == "__main__":
    main()
