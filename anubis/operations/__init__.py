"""What Anubis can be asked to do, as functions: for the command line, notebooks and services alike.

    from anubis.core.records import CampaignKind
    from anubis.operations.campaigns import run_campaign
    from anubis.operations.campaign_files import CampaignRequest

    result = run_campaign(CampaignRequest(kind=CampaignKind.ACCEPT, cluster="simulated"))
    result.judgement                       # healthy, defective or unknown
    result.view.assessment.nodes           # a verdict on each node, with the reason

Files and nodes are named as on the command line. A caller (`operations.caller`) may be handed in:
it says which history and what time it is, hears remarks, decisions and progress, and may end a
campaign early, which raises `errors.Stopped`; `resume_campaign` goes on with it. What a user can
mend is an `errors.AnubisError`.
"""
