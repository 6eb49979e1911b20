"""Functions for everything that Anubis does: for the command line, notebooks and services.

    from anubis.operations.campaigns import run_campaign
    from anubis.operations.requests import AcceptRequest

    result = run_campaign(AcceptRequest(cluster="simulated"))
    result.judgement                       # healthy, defective or unknown
    result.view.assessment.nodes           # a verdict on each node, with the reason

Files and nodes are named as on the command line. Most functions take a caller
(`operations.caller`), which has the history and the clock, receives remarks, decisions and
progress, and may end a campaign early. That raises `errors.Stopped`, and `resume_campaign` goes on
with the campaign. Every error that a user can mend is an `errors.AnubisError`.
"""
