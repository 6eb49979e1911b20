"""What ib_write_bw, ib_write_lat and ib_send_lat do, as far as their callers see, without an HCA.

A server listens and takes one client; the client prints a table in perftest's layout with the
planted numbers BW (MiB/s) or LAT (us) from its environment, STALL seconds later. What perftest
refuses of buffers in GPUs (perftest_parameters.c) it refuses too.
"""

import os
import socket
import sys
import time

if "--help" in sys.argv:
    sys.exit(print(os.environ.get("HELP", "")))
tool = sys.argv[0].rpartition("/")[2]
options, others = {}, []
arguments = iter(sys.argv[1:])
for word in arguments:
    if word == "-F" or word.startswith("--use_cuda"):
        continue
    if word.startswith("-"):
        options[word] = next(arguments)
    else:
        others.append(word)

in_gpu = any(word.startswith(("--use_cuda=", "--use_cuda_bus_id=")) for word in sys.argv)
if in_gpu and tool == "ib_write_lat":
    sys.exit(" Perftest supports CUDA latency tests with read/send verbs only")
if in_gpu and int(options["-s"]) <= int(options.get("-I", "220" if tool.endswith("lat") else "0")):
    sys.exit("Perftest doesn't support CUDA tests with inline messages")
if "--use_cuda_dmabuf" in sys.argv and not in_gpu:
    sys.exit(" You cannot use DMA-BUF without choosing a GPU")
if in_gpu:
    print("initializing CUDA\nListing all CUDA devices in system:")
    print("CUDA device 0: PCIe address is 8B:00\n\nPicking device No. 0")
    print("[pid = 4711, dev = 0] device name = [NVIDIA H100 80GB HBM3]\ncreating CUDA Ctx")

size, iterations, port = options["-s"], options["-n"], int(options["-p"])
if others:
    socket.create_connection((others[0], port), timeout=10).close()
    time.sleep(float(os.environ.get("STALL", "0")))
    if tool.endswith("lat"):
        print(
            " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    "
            "t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] "
        )
        print(
            f" {size}       {iterations}   0.90  9.11  1.77  {os.environ['LAT']}  0.09  1.9  3.1 "
        )
    else:
        print(" #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]")
        print(f" {size} {iterations} 99999.99 {os.environ['BW']} 0.003")
    if in_gpu:
        print("deallocating GPU buffer 00007f2b5a200000\ndestroying current CUDA Ctx")
else:
    with socket.create_server(("", port)) as server:
        server.accept()
