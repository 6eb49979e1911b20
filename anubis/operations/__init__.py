"""What Anubis can be asked to do, as functions: for the command line, notebooks and services alike.

    from anubis.core.records import CampaignKind
    from anubis.operations.campaigns import run_campaign
    from anubis.operations.preparing import CampaignRequest

    result = run_campaign(CampaignRequest(kind=CampaignKind.ACCEPT, cluster="simulated"))
    result.judgement                       # healthy, defective or unknown
    result.view.assessment.nodes           # a verdict on each node, with the reason

A request names its files and nodes as the command line does. A caller (`operations.caller`) may be
handed in: it hears remarks, decisions and progress, and may end a campaign early, which raises
`errors.Stopped`; `resume_campaign` goes on with it. The history is $ANUBIS_HISTORY unless
`history_url` names another. What a user can mend is an `errors.AnubisError`.
"""
