"""Generated parts of pods and nodes for property tests of predicates."""

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tests.kubernetes_shim.shim_builders import Json

NODES = ("n1", "n2", "n3", "n4")
PODS = ("p1", "p2", "p3", "p4", "p5", "p6", "p7", "p8")
NAMESPACES = ("default", "other")
KEYS = ("app", "tier")
VALUES = ("a", "b", "")
TOPOLOGIES = ("zone", "host")

APP = {"app": "a"}

# What is usual comes first, and several times: cases in which nothing matches anything would say little.
labels = st.just(APP) | st.just(APP) | st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES))
node_labels = st.fixed_dictionaries({"zone": st.sampled_from("xyz"), "host": st.sampled_from("123")}) | (
    st.fixed_dictionaries(
        {}, optional={"zone": st.just("x"), "host": st.just("1"), "size": st.sampled_from(("3", "l"))}
    )
)
taints = st.lists(
    st.fixed_dictionaries(
        {"key": st.sampled_from("kl"), "effect": st.sampled_from(("NoSchedule", "NoExecute", "PreferNoSchedule"))},
        optional={"value": st.just("v")},
    ),
    max_size=1,
)


def requirements(keys: SearchStrategy[str], values: SearchStrategy[str], *operators: str) -> SearchStrategy[Json]:
    with_values = st.fixed_dictionaries(
        {"key": keys, "operator": st.sampled_from(("In", "NotIn")), "values": st.lists(values, min_size=1, max_size=2)}
    )
    without = st.fixed_dictionaries({"key": keys, "operator": st.sampled_from(("Exists", "DoesNotExist"))})
    compared = st.fixed_dictionaries(
        {"key": st.just("size"), "operator": st.sampled_from(("Gt", "Lt")), "values": st.sampled_from((["2"], ["5"]))}
    )
    return with_values | without | compared if operators else with_values | without


usual = st.just({"matchLabels": APP})
selectors = (
    usual
    | usual
    | usual
    | st.none()
    | st.fixed_dictionaries(
        {},
        optional={
            "matchLabels": labels,
            "matchExpressions": st.lists(requirements(st.sampled_from(KEYS), st.sampled_from(VALUES)), max_size=2),
        },
    )
)
pod_term = {"topologyKey": st.sampled_from(TOPOLOGIES), "labelSelector": selectors}
pod_terms = st.lists(
    st.fixed_dictionaries(pod_term)
    | st.fixed_dictionaries({**pod_term, "namespaceSelector": st.sampled_from(({"matchLabels": APP}, {}))})
    | st.fixed_dictionaries({**pod_term, "namespaces": st.lists(st.sampled_from(NAMESPACES), max_size=2)}),
    min_size=1,
    max_size=2,
).map(lambda terms: {"requiredDuringSchedulingIgnoredDuringExecution": terms})
node_terms = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "matchExpressions": st.lists(
                requirements(st.sampled_from(("zone", "host")), st.sampled_from("xy12"), "Gt"), max_size=2
            ),
            "matchFields": st.lists(
                st.fixed_dictionaries(
                    {
                        "key": st.just("metadata.name"),
                        "operator": st.sampled_from(("In", "NotIn")),
                        "values": st.sampled_from(NODES).map(lambda name: [name]),
                    }
                ),
                max_size=1,
            ),
        },
    ),
    max_size=2,
).map(lambda terms: {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}})
spread_rule = {"topologyKey": st.sampled_from(("zone", "zone", "host")), "maxSkew": st.sampled_from((1, 1, 2))}
spread = st.lists(
    st.fixed_dictionaries({**spread_rule, "labelSelector": usual})
    | st.fixed_dictionaries({**spread_rule, "labelSelector": usual, "minDomains": st.integers(2, 3)})
    | st.fixed_dictionaries(
        {**spread_rule, "labelSelector": selectors},
        optional={
            "whenUnsatisfiable": st.sampled_from(("DoNotSchedule", "ScheduleAnyway")),
            "minDomains": st.integers(1, 3),
            "nodeAffinityPolicy": st.sampled_from(("Honor", "Ignore")),
            "nodeTaintsPolicy": st.sampled_from(("Honor", "Ignore")),
            "matchLabelKeys": st.just(["tier"]),
        },
    ),
    min_size=1,
    max_size=2,
)
ports = st.lists(
    st.fixed_dictionaries(
        {"hostPort": st.sampled_from((80, 81))}, optional={"hostIP": st.sampled_from(("10.0.0.1", ""))}
    ),
    max_size=1,
)
any_constraints = st.fixed_dictionaries(
    {},
    optional={
        "nodeSelector": st.just({"zone": "x"}),
        "affinity": st.fixed_dictionaries(
            {}, optional={"nodeAffinity": node_terms, "podAffinity": pod_terms, "podAntiAffinity": pod_terms}
        ),
        "topologySpreadConstraints": spread,
        "containers": ports.map(lambda ports: [{"name": "main", "ports": ports}]),
        "tolerations": st.sampled_from(
            ([], [{"key": "k"}], [{"key": "k", "value": "v", "effect": "NoSchedule"}], [{"operator": "Exists"}])
        ),
    },
)
one_constraint = (
    spread.map(lambda rules: {"topologySpreadConstraints": rules})
    | pod_terms.map(lambda terms: {"affinity": {"podAntiAffinity": terms}})
    | pod_terms.map(lambda terms: {"affinity": {"podAffinity": terms}})
)
specs = st.just({}) | one_constraint | one_constraint | any_constraints
