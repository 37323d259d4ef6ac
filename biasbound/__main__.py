"""`python -m biasbound`."""

import sys

from .cli import main

sys.exit(main())
