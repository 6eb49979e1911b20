"""What anubis offers to Python: see docs/python.md."""

from anubis.foreign.mapping import TableMapping as TableMapping
from anubis.incidents.nodes import NodeMapping as NodeMapping
from anubis.operations.adopting import adopt_alphas as adopt_alphas
from anubis.operations.adopting import write_policy as write_policy
from anubis.operations.caller import Caller as Caller
from anubis.operations.campaigns import plan_campaign as plan_campaign
from anubis.operations.campaigns import resume_campaign as resume_campaign
from anubis.operations.campaigns import run_campaign as run_campaign
from anubis.operations.checking import check_program as check_program
from anubis.operations.deciding import Terms as Terms
from anubis.operations.deciding import select as select
from anubis.operations.examining import examine as examine
from anubis.operations.foreseeing import evaluate_risk as evaluate_risk
from anubis.operations.foreseeing import foresee as foresee
from anubis.operations.foreseeing import train_risk as train_risk
from anubis.operations.gating import gate as gate
from anubis.operations.importing import import_csv as import_csv
from anubis.operations.importing import import_incidents as import_incidents
from anubis.operations.importing import import_nodes as import_nodes
from anubis.operations.importing import import_superbench as import_superbench
from anubis.operations.importing import import_superbench_baseline as import_superbench_baseline
from anubis.operations.judging import compare_criteria as compare_criteria
from anubis.operations.judging import judge as judge
from anubis.operations.keeping import Keeping as Keeping
from anubis.operations.keeping import actions as actions
from anubis.operations.keeping import approve as approve
from anubis.operations.keeping import keep as keep
from anubis.operations.keeping import keeping_of as keeping_of
from anubis.operations.learning import learn as learn
from anubis.operations.learning import learned_here as learned_here
from anubis.operations.measuring import accept as accept
from anubis.operations.measuring import scan as scan
from anubis.operations.measuring import validate as validate
from anubis.operations.nodes import nodes as nodes
from anubis.operations.past import campaigns as campaigns
from anubis.operations.past import check_history as check_history
from anubis.operations.past import clusters as clusters
from anubis.operations.past import decisions as decisions
from anubis.operations.past import forget_import as forget_import
from anubis.operations.past import imports as imports
from anubis.operations.past import recall as recall
from anubis.operations.past import rename_cluster as rename_cluster
from anubis.operations.past import timeline as timeline
from anubis.operations.past import track_records as track_records
from anubis.operations.preparing import CampaignRequest as CampaignRequest
from anubis.operations.simulating import simulate as simulate
from anubis.operations.surveying import inspect_fabric as inspect_fabric
from anubis.operations.sweeping import sweep as sweep
from anubis.operations.telling import tell as tell
from anubis.operations.tuning import tune as tune
from anubis.operations.tuning import write_suite as write_suite
from anubis.operations.visiting import examine_nodes as examine_nodes

__version__: str
OPERATIONS: dict[str, str]
