#!/bin/sh
# A program that behaves, for contrast: it measures its arguments.
cat <<DOCUMENT
{"schema":"anubis.result/1","benchmark":"answers","version":"1","parameters":{},
"environment":{"arguments":"$*"},"duration_s":1.0,"not_applicable":null,
"series":[{"metric":"speed","device":"cpu","samples":[1.0, 2.0]}]}
DOCUMENT
