"""Settings of the engine's tests, made before torch is loaded."""

import os

os.environ["OMP_NUM_THREADS"] = "1"
# Tiny models gain nothing from a second thread, and on a busy machine each join of two threads waits.
