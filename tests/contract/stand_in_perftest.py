"""What ib_write_bw, ib_write_lat and ib_send_lat do, as far as their callers see, without an HCA.

A server listens and takes one client; the client prints a table in perftest's layout with the
planted numbers BW (MiB/s) or LAT (us) from its environment, STALL seconds later.
"""

import os
import socket
import sys
import time

if "--help" in sys.argv:
    sys.exit(print(os.environ.get("HELP", "")))
options, others = {}, []
arguments = iter(sys.argv[1:])
for word in arguments:
    if word == "-F" or word.startswith("--use_cuda"):
        continue
    if word.startswith("-"):
        options[word] = next(arguments)
    else:
        others.append(word)

size, iterations, port = options["-s"], options["-n"], int(options["-p"])
if others:
    socket.create_connection((others[0], port), timeout=10).close()
    time.sleep(float(os.environ.get("STALL", "0")))
    if sys.argv[0].endswith("lat"):
        print(" #bytes #iterations    t_min[usec]    t_avg[usec]")
        print(f" {size} {iterations} 0.9 {os.environ['LAT']}")
    else:
        print(" #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]")
        print(f" {size} {iterations} 99999.99 {os.environ['BW']} 0.003")
else:
    with socket.create_server(("", port)) as server:
        server.accept()
