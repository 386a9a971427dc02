"""`python -m tests.cluster.local`: the local cluster from a shell."""

import sys

from tests.cluster.local.cli import main

sys.exit(main())
