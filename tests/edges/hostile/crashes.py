"""Dies of SIGSEGV in the middle of its work."""

import os
import signal
import sys

print("about to read address 0", file=sys.stderr, flush=True)
os.kill(os.getpid(), signal.SIGSEGV)
