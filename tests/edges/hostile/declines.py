"""Says that it does not apply here, as a GPU program does on a CPU node."""

import sys

print('{"schema":"anubis.result/1","benchmark":"declines","version":"1","parameters":{},')
print('"environment":{},"duration_s":0.0,"series":[],')
print('"not_applicable":"no GPU here"}')
sys.exit(3)
