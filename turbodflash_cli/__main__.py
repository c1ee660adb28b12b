"""`python -m turbodflash_cli` is the same program."""

import sys

from turbodflash_cli.app import main

sys.exit(main())
