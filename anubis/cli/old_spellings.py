"""Old spellings of verbs and options, and what they are called now: they go on working."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

VERBS: Mapping[str, str] = {
    "actions": "history actions",
    "import": "history import",
    "judge": "criteria judge",
    "learn": "criteria learn",
    "select": "gate --plan",
    "simulate": "risk simulate",
    "topology": "scan --help",
    "topology show": "scan --draw",
    "tune": "bench tune",
    "watch-model": "criteria --help",
    "watch-model show": "criteria show-watching",
    "watch-model train": "criteria learn-watching",
}
OPTIONS: Mapping[str, Mapping[str, str]] = {  # of a verb, by its name at that time
    "bench new": {"-b": "--benchmarks"},
    "diagnose": {"--policy": "--diagnosis", "-t": "--topology"},
    "import csv": {"-m": "--map"},
    "import incidents": {"-m": "--mapping"},
    "import nodes": {"-m": "--map"},
    "learn": {"--from": "--criteria"},
    "risk show": {"--file": "--risk-model"},
    "risk train": {"--file": "--risk-model", "--model": "--kind"},
    "select": {"--criteria": "--upgrade"},
    "simulate": {"--model": "--risk-model"},
    "topology show": {"--nodes": ""},  # nodes are named by their place now
}


def renew(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words of a command line in today's spelling, and a remark for each that is old."""
    renewed: list[str | None] = [*words]
    remarks: list[str] = []
    options = _first_match(words, OPTIONS)
    for place, word in enumerate(words):
        if word == "--":
            break
        name, joined, value = _split(word)
        now = OPTIONS.get(options, {}).get(name)
        if now is None:
            continue
        renewed[place] = f"{now}={value}".removeprefix("=") if joined else now or None
        remarks.append(f"{name} of anubis {options} is now {now or 'an argument: NODES'}")
    if verb := _first_match(words, VERBS):
        renewed[: len(verb.split())] = VERBS[verb].split()
        remarks.append(f"anubis {verb} is now anubis {VERBS[verb]}")
    return [word for word in renewed if word is not None], remarks


def _first_match(words: Sequence[str], names: Mapping[str, object]) -> str:
    """The longest of these names with which the words begin."""
    heads = (" ".join(words[:length]) for length in (2, 1))
    return next((head for head in heads if head in names), "")


def _split(word: str) -> tuple[str, str, str]:
    """An option and the value that is written in one word with it: --name=value or -nvalue."""
    if word.startswith("--"):
        return word.partition("=")
    return (word[:2], word[2:3], word[2:]) if word.startswith("-") else (word, "", "")
