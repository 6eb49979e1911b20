"""Anubis over HTTP: thin over the operations, with the documents and the pages of reports."""
