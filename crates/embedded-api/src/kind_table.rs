//! The table of served kinds. Names, scopes and subresources of ours are those of spec/api section
//! 1; a test in `schemas` compares them with the types.

use crate::columns::{self, Column};
use crate::kinds::{Family, Kind, SelectableField};

const SPIDERPOOL: &str = "spiderpool.spidernet.io";

const fn spider(
    kind: &'static str,
    plural: &'static str,
    singular: &'static str,
    short_names: &'static [&'static str],
    columns: &'static [Column],
) -> Kind {
    Kind {
        group: SPIDERPOOL,
        version: "v2beta1",
        kind,
        plural,
        singular,
        short_names,
        categories: &["spiderpool"],
        namespaced: false,
        status: false,
        generation: true,
        family: Family::Custom,
        collection: plural,
        fields: &[],
        columns,
    }
}

const fn core(
    group: &'static str,
    kind: &'static str,
    plural: &'static str,
    singular: &'static str,
    short_names: &'static [&'static str],
    columns: &'static [Column],
) -> Kind {
    Kind {
        group,
        version: "v1",
        kind,
        plural,
        singular,
        short_names,
        categories: &[],
        namespaced: true,
        status: false,
        generation: false,
        family: Family::Core,
        collection: plural,
        fields: &[],
        columns,
    }
}

const EVENT_FIELDS: &[SelectableField] = &[
    SelectableField {
        label: "involvedObject.kind",
        pointer: "/involvedObject/kind",
    },
    SelectableField {
        label: "involvedObject.namespace",
        pointer: "/involvedObject/namespace",
    },
    SelectableField {
        label: "involvedObject.name",
        pointer: "/involvedObject/name",
    },
    SelectableField {
        label: "involvedObject.uid",
        pointer: "/involvedObject/uid",
    },
    SelectableField {
        label: "involvedObject.apiVersion",
        pointer: "/involvedObject/apiVersion",
    },
    SelectableField {
        label: "involvedObject.resourceVersion",
        pointer: "/involvedObject/resourceVersion",
    },
    SelectableField {
        label: "involvedObject.fieldPath",
        pointer: "/involvedObject/fieldPath",
    },
    SelectableField {
        label: "reason",
        pointer: "/reason",
    },
    SelectableField {
        label: "reportingComponent",
        pointer: "/reportingComponent",
    },
    SelectableField {
        label: "source",
        pointer: "/source/component",
    },
    SelectableField {
        label: "type",
        pointer: "/type",
    },
];

const POD_FIELDS: &[SelectableField] = &[
    SelectableField {
        label: "spec.nodeName",
        pointer: "/spec/nodeName",
    },
    SelectableField {
        label: "status.phase",
        pointer: "/status/phase",
    },
    SelectableField {
        label: "status.podIP",
        pointer: "/status/podIP",
    },
];

pub(crate) static KINDS: &[Kind] = &[
    Kind {
        namespaced: false,
        status: true,
        fields: &[SelectableField {
            label: "status.phase",
            pointer: "/status/phase",
        }],
        ..core(
            "",
            "Namespace",
            "namespaces",
            "namespace",
            &["ns"],
            columns::NAMESPACE,
        )
    },
    Kind {
        namespaced: false,
        status: true,
        fields: &[SelectableField {
            label: "spec.unschedulable",
            pointer: "/spec/unschedulable",
        }],
        ..core("", "Node", "nodes", "node", &["no"], columns::NODE)
    },
    Kind {
        status: true,
        generation: true,
        categories: &["all"],
        fields: POD_FIELDS,
        ..core("", "Pod", "pods", "pod", &["po"], columns::POD)
    },
    Kind {
        fields: EVENT_FIELDS,
        ..core("", "Event", "events", "event", &["ev"], columns::EVENT)
    },
    Kind {
        fields: EVENT_FIELDS,
        ..core(
            "events.k8s.io",
            "Event",
            "events",
            "event",
            &["ev"],
            columns::EVENT,
        )
    },
    core(
        "coordination.k8s.io",
        "Lease",
        "leases",
        "lease",
        &[],
        columns::LEASE,
    ),
    Kind {
        status: true,
        ..spider(
            "SpiderIPPool",
            "spiderippools",
            "spiderippool",
            &["sp"],
            columns::IPPOOL,
        )
    },
    Kind {
        status: true,
        ..spider(
            "SpiderSubnet",
            "spidersubnets",
            "spidersubnet",
            &["ss"],
            columns::SUBNET,
        )
    },
    spider(
        "SpiderReservedIP",
        "spiderreservedips",
        "spiderreservedip",
        &["sr"],
        columns::RESERVED_IP,
    ),
    Kind {
        namespaced: true,
        fields: &[SelectableField {
            label: "status.current.node",
            pointer: "/status/current/node",
        }],
        ..spider(
            "SpiderEndpoint",
            "spiderendpoints",
            "spiderendpoint",
            &["se"],
            columns::ENDPOINT,
        )
    },
    Kind {
        status: true,
        ..spider(
            "SpiderCoordinator",
            "spidercoordinators",
            "spidercoordinator",
            &["scc"],
            columns::NAME_AND_AGE,
        )
    },
    Kind {
        namespaced: true,
        ..spider(
            "SpiderMultusConfig",
            "spidermultusconfigs",
            "spidermultusconfig",
            &["smc"],
            columns::NAME_AND_AGE,
        )
    },
    Kind {
        group: "k8s.cni.cncf.io",
        version: "v1",
        categories: &[],
        namespaced: true,
        ..spider(
            "NetworkAttachmentDefinition",
            "network-attachment-definitions",
            "network-attachment-definition",
            &["net-attach-def"],
            columns::NAME_AND_AGE,
        )
    },
];
