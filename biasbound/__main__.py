"""`python -m biasbound`."""

import sys

from biasbound.cli import main

sys.exit(main())
