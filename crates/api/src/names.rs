//! Every name that users, operators or other processes rely on, once.

/// API group of all resource kinds.
pub const GROUP: &str = "spiderpool.spidernet.io";
/// The one served and stored version.
pub const VERSION: &str = "v2beta1";
/// Finalizer on pools, subnets, endpoints and coordinators.
pub const FINALIZER: &str = "spiderpool.spidernet.io";
/// Label of an endpoint: the node its Pod runs on.
pub const LABEL_NODE: &str = "spiderpool.spidernet.io/node";
/// Label of Pod objects that standalone mode made and will delete itself.
pub const LABEL_OWNED_BY: &str = "spiderpool.spidernet.io/owned-by";
/// Value of [`LABEL_OWNED_BY`].
pub const OWNED_BY_STANDALONE: &str = "standalone";

/// Annotation of an object from the manifests folder: the manifest as it was applied last.
pub const LAST_MANIFEST: &str = "spiderpool.spidernet.io/last-applied-manifest";

/// Pool annotation and mirrored label: marks a pool whose addresses a provider binds.
pub const IAAS_PROVIDER: &str = "ipam.spidernet.io/iaas-provider";
/// Pool annotation: guest name of the NIC that carries the pool's sub-ENIs.
pub const PARENT_NIC: &str = "ipam.spidernet.io/parent-nic";
/// Node annotation: the node's hardware NICs, a JSON object of guest name to MAC.
pub const PARENT_NICS: &str = "ipam.spidernet.io/parent-nics";
/// Pool annotation: name of the sibling pool of the other family.
pub const PAIR_POOL: &str = "ipam.spidernet.io/pair-pool";
/// Pool label: its CIDR with `.`, `:`, `/` turned into `-`.
pub const IPPOOL_CIDR: &str = "ipam.spidernet.io/ippool-cidr";
/// Subnet label: its CIDR with `.`, `:`, `/` turned into `-`.
pub const SUBNET_CIDR: &str = "ipam.spidernet.io/subnet-cidr";
/// Pool label: the subnet that owns it.
pub const OWNER_SPIDER_SUBNET: &str = "ipam.spidernet.io/owner-spider-subnet";
/// Pod annotation: one pool choice for the NIC being added.
pub const POD_IPPOOL: &str = "ipam.spidernet.io/ippool";
/// Pod annotation: pool choices for all NICs.
pub const POD_IPPOOLS: &str = "ipam.spidernet.io/ippools";
/// Pod annotation: automatic pool of one NIC.
pub const POD_SUBNET: &str = "ipam.spidernet.io/subnet";
/// Pod annotation: automatic pools of several NICs.
pub const POD_SUBNETS: &str = "ipam.spidernet.io/subnets";
/// Pod annotation: size of an automatic pool, `3` or `+2`.
pub const POD_IPPOOL_IP_NUMBER: &str = "ipam.spidernet.io/ippool-ip-number";
/// Pod annotation and label of automatic pools: whether the pool goes with its application.
pub const POD_IPPOOL_RECLAIM: &str = "ipam.spidernet.io/ippool-reclaim";
/// Pod annotation: extra routes.
pub const POD_ROUTES: &str = "ipam.spidernet.io/routes";
/// Namespace annotation: default IPv4 pools.
pub const NAMESPACE_IPV4_POOLS: &str = "ipam.spidernet.io/default-ipv4-ippool";
/// Namespace annotation: default IPv6 pools.
pub const NAMESPACE_IPV6_POOLS: &str = "ipam.spidernet.io/default-ipv6-ippool";
/// Pod annotation of Multus: networks besides the default one.
pub const POD_NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";
/// Pod annotation of Multus: the network of `eth0`.
pub const POD_DEFAULT_NETWORK: &str = "v1.multus-cni.io/default-network";
/// What people take for [`POD_DEFAULT_NETWORK`].
pub const POD_DEFAULT_NETWORK_MISTAKEN: &str = "k8s.v1.cni.cncf.io/default-network";
/// Annotation of Pods, namespaces and SpiderMultusConfigs, and label of the last: a group of RDMA
/// networks.
pub const RDMA_RESOURCE_INJECT: &str = "cni.spidernet.io/rdma-resource-inject";
/// The same for a group of any networks.
pub const NETWORK_RESOURCE_INJECT: &str = "cni.spidernet.io/network-resource-inject";
/// SpiderMultusConfig annotation: name of its NetworkAttachmentDefinition.
pub const MULTUS_CR_NAME: &str = "multus.spidernet.io/cr-name";
/// SpiderMultusConfig annotation: CNI version of the configuration.
pub const MULTUS_CNI_VERSION: &str = "multus.spidernet.io/cni-version";
/// SpiderMultusConfig annotation: name inside the configuration.
pub const CNI_CONFIG_NAME: &str = "cni.spidernet.io/cniconfig-name";
/// Resource of sub-ENIs under a provider of generation 1.
pub const RESOURCE_SUB_ENI: &str = "spidernet.io/sub-eni";
/// NetworkAttachmentDefinition annotation of Multus: the device that a Pod of this network asks for.
pub const NETWORK_RESOURCE_NAME: &str = "k8s.v1.cni.cncf.io/resourceName";
/// Resources of Open vSwitch bridges with devices: this and the bridge.
pub const OVS_RESOURCE_PREFIX: &str = "ovs-cni.network.kubevirt.io/";
/// Annotation of a `virt-launcher` Pod that is the target of a live migration.
pub const KUBEVIRT_MIGRATION_JOB: &str = "kubevirt.io/migrationJobName";
/// Prefix of the keys by which an automatic pool's `podAffinity` names its application.
pub const APP_KEY_PREFIX: &str = "ipam.spidernet.io/app-";
/// Pool label: name of the application that an automatic pool was made for; present on those alone.
pub const OWNER_APPLICATION_NAME: &str = "ipam.spidernet.io/owner-application-name";
/// Its group and version, as `apps_v1`.
pub const OWNER_APPLICATION_GV: &str = "ipam.spidernet.io/owner-application-gv";
/// Its kind.
pub const OWNER_APPLICATION_KIND: &str = "ipam.spidernet.io/owner-application-kind";
/// Its namespace.
pub const OWNER_APPLICATION_NAMESPACE: &str = "ipam.spidernet.io/owner-application-namespace";

/// Key of the CNI result extension that carries the sub-ENI.
pub const RESULT_SUB_ENI: &str = "spidernet.io/sub-eni";

/// CNI plugin that serves IPAM only.
pub const PLUGIN_IPAM: &str = "spiderpool";
/// CNI main plugin for sub-ENIs.
pub const PLUGIN_ENI_VLAN: &str = "eni-vlan";

/// Folder of the socket, spool, attachment files and locks.
pub const DEFAULT_RUN_DIR: &str = "/var/run/spidernet";
/// Where the agent listens unless told otherwise.
pub const DEFAULT_SOCKET: &str = "/var/run/spidernet/spiderpool.sock";
/// Environment variable that names the socket.
pub const ENV_SOCKET: &str = "SPIDERPOOL_SOCKET";
/// Folder name, beside the socket, of DELs that found no agent.
pub const SPOOL_DIR: &str = "pending-del";
/// Folder name, beside the socket, of attachment files.
pub const ATTACHMENTS_DIR: &str = "attachments";
/// Path of the agent's CNI call.
pub const ROUTE_CNI: &str = "/v1/cni";
/// Path by which a plugin gives all addresses of its Pod back.
pub const ROUTE_IPS: &str = "/v1/ipam/ips";
/// Path of the agent's health call.
pub const ROUTE_HEALTHY: &str = "/v1/ipam/healthy";
