"""`python -m treadle` is the command `treadle`."""

from .cli.main import main

if __name__ == "__main__":
    main()
