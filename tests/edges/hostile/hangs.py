"""Never answers, as a program does whose driver hangs."""

import signal

while True:
    signal.pause()
