"""Prints NaN, which is not JSON and no measurement."""

print('{"schema":"anubis.result/1","benchmark":"nan","version":"1","parameters":{},')
print('"environment":{},"duration_s":1.0,"not_applicable":null,')
print('"series":[{"metric":"speed","device":"cpu","samples":[1.0, NaN]}]}')
