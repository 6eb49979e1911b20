"""Prints the first half of its document, and ends as if all were well."""

print('{"schema":"anubis.result/1","benchmark":"half","series":[{"metric":"speed","sam')
