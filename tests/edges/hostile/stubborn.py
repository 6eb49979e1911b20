"""Ignores SIGTERM, and so do its children, one of them in a session of its own."""

import os
import signal
import time

signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
elif os.fork() == 0:
    pass
time.sleep(600)
