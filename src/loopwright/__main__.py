"""The command line, as `python -m loopwright`."""

import sys

from loopwright_command import main

if __name__ == "__main__":
    sys.exit(main())
