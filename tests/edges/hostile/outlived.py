"""Answers well, but leaves a daemon behind that holds its stdout open."""

import os
import sys
import time

if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print("the daemon is up", file=sys.stderr, flush=True)
        time.sleep(600)
    os._exit(0)
os.wait()
print('{"schema":"anubis.result/1","benchmark":"outlived","version":"1","parameters":{},')
print('"environment":{},"duration_s":1.0,"not_applicable":null,')
print('"series":[{"metric":"speed","device":"cpu","samples":[1.0, 2.0]}]}', flush=True)
