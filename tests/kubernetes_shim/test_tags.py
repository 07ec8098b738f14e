"""Tags and attributes say the same as the predicates: the core's own filters decide about them."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kubernetes_shim.predicates.strategies import node_labels, node_terms, taints
from tests.kubernetes_shim.shim_builders import Json, make_node, make_pod
from yunishard.kubernetes_shim.cluster import Cluster
from yunishard.kubernetes_shim.objects import Node, Pod
from yunishard.kubernetes_shim.predicates.evaluation import refuse
from yunishard.kubernetes_shim.tags import PodTags, Scope, describe_in_tags, describe_node, find_scope_of_keys
from yunishard.partition_worker.engine.predicates.predicate import NodeSelector, NodeView, Tolerations

TOLERATIONS: list[Json] = [
    {"key": "k"},
    {"key": "k", "operator": "Exists"},
    {"key": "k", "value": "v", "effect": "NoSchedule"},
    {"operator": "Exists", "effect": "NoExecute"},
    {"operator": "Exists"},
    {"key": "l", "operator": "Exists", "effect": "NoSchedule"},
]


def core_refuses(pod: Pod, node: Node) -> str:
    """Evaluate the tags as the core does."""
    tags, view = describe_in_tags(pod).tags, NodeView(node.metadata.name, describe_node(node), {})
    predicates = (NodeSelector(), Tolerations())
    return "".join(one.refuses(one.read(tags), view) for one in predicates)


def shim_refuses(pod: Pod, node: Node) -> str:
    cluster = Cluster()
    cluster.set_object(pod)
    cluster.set_object(node)
    return refuse(cluster, pod.metadata.uid, node.metadata.name) or ""


@settings(max_examples=300)
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "nodeSelector": st.just({"zone": "x"}) | st.just({"host": ""}),
            "affinity": node_terms.map(lambda terms: {"nodeAffinity": terms}),
            "tolerations": st.lists(st.sampled_from(TOLERATIONS), max_size=2),
        },
    ),
    st.sampled_from(("n1", "n2")),
    node_labels,
    taints,
)
def test_tags_and_predicates_agree(spec: Json, name: str, labels: dict[str, str], of_node: list[Json]) -> None:
    pod, node = make_pod(spec=spec), make_node(name, labels=labels, taints=of_node)
    in_core, in_shim = core_refuses(pod, node), shim_refuses(pod, node)
    assert bool(in_core) == bool(in_shim), (describe_in_tags(pod), describe_node(node), in_core, in_shim)
    assert describe_in_tags(pod).scope is Scope.NONE


def test_a_pod_without_constraints_needs_no_tags() -> None:
    assert describe_in_tags(make_pod()) == PodTags({}, Scope.NONE)


def test_alternatives_repeat_the_node_selector() -> None:
    terms = [
        {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd", "nvme"]}]},
        {"matchExpressions": [{"key": "cores", "operator": "Gt", "values": ["16"]}]},
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    pod = make_pod(spec={"nodeSelector": {"zone": "a"}, "affinity": {"nodeAffinity": required}})
    selector = "zone=a,disk in (nvme,ssd) || zone=a,cores>16"
    assert describe_in_tags(pod) == PodTags({"yunishard/nodeSelector": selector}, Scope.NONE)


def test_a_pod_that_depends_on_other_nodes_has_the_scope_of_the_partition() -> None:
    def require(kind: str, key: str) -> Json:
        term = {"topologyKey": key, "labelSelector": {}}
        return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}

    wide: list[Json] = [
        require("podAffinity", "zone"),
        require("podAffinity", "kubernetes.io/hostname"),
        require("podAntiAffinity", "zone"),
        {"topologySpreadConstraints": [{"topologyKey": "zone", "maxSkew": 1}]},
        {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]},
        {"volumes": [{"name": "data", "ephemeral": {}}]},
    ]
    narrow: list[Json] = [
        require("podAntiAffinity", "kubernetes.io/hostname"),
        {"containers": [{"name": "main", "ports": [{"hostPort": 80}]}]},
    ]
    free: list[Json] = [
        {"topologySpreadConstraints": [{"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}]},
        {"containers": [{"name": "main", "ports": [{"containerPort": 80}]}], "volumes": [{"name": "cache"}]},
    ]
    for specs, scope in ((wide, Scope.PARTITION), (narrow, Scope.NODE), (free, Scope.NONE)):
        assert [describe_in_tags(make_pod(spec=spec)).scope for spec in specs] == [scope] * len(specs)


def test_the_core_asks_about_a_pod_of_a_daemon_set_which_it_places_on_drained_nodes() -> None:
    fields = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [fields]}}
    spec: Json = {"affinity": {"nodeAffinity": required}}
    assert describe_in_tags(make_pod(spec=spec)).scope is Scope.NONE
    assert describe_in_tags(make_pod(spec=spec, owners=[{"kind": "DaemonSet"}])).scope is Scope.NODE


def test_anti_affinity_by_host_name_concerns_one_node() -> None:
    assert find_scope_of_keys([]) is Scope.NONE
    assert find_scope_of_keys(["kubernetes.io/hostname"]) is Scope.NODE
    assert find_scope_of_keys(["kubernetes.io/hostname", "zone"]) is Scope.PARTITION


def test_constraints_that_the_core_would_not_read_are_left_to_the_predicate() -> None:
    term = {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term] * 65}}
    assert describe_in_tags(make_pod(spec={"affinity": {"nodeAffinity": required}})) == PodTags({}, Scope.NODE)
    many = [{"key": f"key-{number}", "operator": "Exists"} for number in range(10_000)]
    assert describe_in_tags(make_pod(spec={"tolerations": many})) == PodTags({"yunishard/tolerations": "*"}, Scope.NODE)


def test_a_pod_that_requires_more_keeps_its_tolerations() -> None:
    spec: Json = {
        "containers": [{"name": "main", "ports": [{"hostPort": 80}]}],
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
    }
    assert describe_in_tags(make_pod(spec=spec)) == PodTags({"yunishard/tolerations": "gpu"}, Scope.NODE)
