//! The command line and the environment. A value that cannot be is refused at start.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Parser, Subcommand};
use spiderpool_api::names;
use spiderpool_controller::conf_file::DEFAULT_CONFIG;
pub use spiderpool_controller::config::version;
use spiderpool_ipam::pick::DEFAULT_RECORD_CAP;

use crate::agent::Settings;
use crate::http::{HEALTH_PORT, HttpSettings, METRICS_PORT, Port, Reach};
use crate::paths::{self, DEFAULT_DIR, DEFAULT_STATE, Paths};
use crate::store::kube::Waits;

/// The node agent of Spiderpool networks: gives Pods and containers their addresses and sub-ENIs.
///
/// The CNI binaries (spiderpool, eni-vlan) in /opt/cni/bin call it over a Unix socket. It needs
/// root. Start it in one of two ways:
///
///   spiderpool-agent standalone      one machine, nothing else needed: the agent brings its own
///                                    small Kubernetes API with it
///   spiderpool-agent daemon          a node of a cluster, or a further node of a standalone one
#[derive(Debug, Parser)]
#[command(name = "spiderpool-agent", version = version(), verbatim_doc_comment)]
pub struct Cli {
    /// What to run.
    #[command(subcommand)]
    pub mode: Mode,
}

/// The two ways to run.
#[derive(Debug, Subcommand)]
pub enum Mode {
    /// Run on this machine alone, with an API of its own
    ///
    /// Put pools as YAML into <DIR>/manifests, or use kubectl with the kubeconfig it writes:
    ///
    ///   spiderpool-agent standalone --dir /etc/spiderpool &
    ///   kubectl --kubeconfig /etc/spiderpool/kubeconfig get spiderippools
    #[command(verbatim_doc_comment)]
    Standalone(StandaloneArgs),
    /// Run as a node of a cluster, with the cluster's API.
    Daemon(DaemonArgs),
}

/// Options of standalone mode.
#[derive(Debug, Args)]
pub struct StandaloneArgs {
    /// Folder with manifests/ and conf.yml, and of the keys and the kubeconfig that are made
    #[arg(long, value_name = "DIR", default_value = DEFAULT_DIR)]
    pub dir: PathBuf,
    /// File that keeps all objects of the built-in API
    #[arg(long, value_name = "FILE", default_value = DEFAULT_STATE)]
    pub state: PathBuf,
    /// Where to write the kubeconfig for kubectl, the provider and further nodes
    /// [default: <DIR>/kubeconfig]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig_out: Option<PathBuf>,
    /// Address on which the built-in API serves TLS; 0 switches the listener off
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:16443")]
    pub api_listen: Listen,
    /// What both modes share.
    #[command(flatten)]
    pub node: NodeArgs,
}

/// Options of daemon mode.
#[derive(Debug, Args)]
pub struct DaemonArgs {
    /// Kubeconfig of the API [default: the Pod's own service account]
    #[arg(long, value_name = "FILE", env = "KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,
    /// Settings besides the command line, conf.yml of the ConfigMap; a file that is not there sets nothing
    #[arg(long, value_name = "FILE", default_value = DEFAULT_CONFIG)]
    pub config_path: PathBuf,
    /// What both modes share.
    #[command(flatten)]
    pub node: NodeArgs,
}

/// Options of both modes.
#[derive(Debug, Args)]
pub struct NodeArgs {
    /// Name of this node [default: the host's name]
    #[arg(long, value_name = "NAME", env = "SPIDERPOOL_NODE_NAME")]
    pub node_name: Option<String>,
    /// Folder of the socket, the attachment files and the DELs that wait
    #[arg(long, value_name = "DIR", default_value = names::DEFAULT_RUN_DIR)]
    pub run_dir: PathBuf,
    /// The socket on which the CNI binaries call [default: <run-dir>/spiderpool.sock]
    #[arg(long, value_name = "FILE", env = names::ENV_SOCKET)]
    pub socket: Option<PathBuf>,
    /// Folder of the pins of the observer's maps and programs, one for each node
    #[arg(long, value_name = "DIR", default_value = paths::DEFAULT_BPF_DIR)]
    pub bpf_dir: PathBuf,
    /// Count and check the frames of sub-ENIs on their parent NICs, by programs in the kernel
    #[arg(long, value_name = "BOOL", env = "SPIDERPOOL_SUBENI_OBSERVER", default_value_t = true, action = clap::ArgAction::Set)]
    pub sub_eni_observer: bool,
    /// Give out IPv4 addresses
    #[arg(long, value_name = "BOOL", env = "SPIDERPOOL_ENABLE_IPV4", default_value_t = true, action = clap::ArgAction::Set)]
    pub enable_ipv4: bool,
    /// Give out IPv6 addresses; with IPv4, pools that name each other are given in pairs
    #[arg(long, value_name = "BOOL", env = "SPIDERPOOL_ENABLE_IPV6", default_value_t = true, action = clap::ArgAction::Set)]
    pub enable_ipv6: bool,
    /// Addresses that one pool gives out at most
    #[arg(long, value_name = "N", env = "SPIDERPOOL_IPPOOL_MAX_ALLOCATED_IPS", default_value_t = DEFAULT_RECORD_CAP,
        value_parser = clap::value_parser!(i64).range(1..))]
    pub max_allocated_ips: i64,
    /// Namespace of the agent, for unqualified names in a pool's multusName [default: kube-system]
    #[arg(long, value_name = "NAME", env = "SPIDERPOOL_POD_NAMESPACE")]
    pub agent_namespace: Option<String>,
    /// The same, as earlier releases named it; the other one wins
    #[arg(long, hide = true, env = "SPIDERPOOL_AGENT_NAMESPACE")]
    pub former_agent_namespace: Option<String>,
    /// Network of eth0 in clusters with Multus, as namespace/name
    #[arg(long, value_name = "NS/NAME", env = "MULTUS_CLUSTER_NETWORK")]
    pub cluster_network: Option<String>,
    /// Let a plugin give up addresses of a stateless Pod that somebody else uses
    #[arg(long, value_name = "BOOL", env = "SPIDERPOOL_ENABLED_RELEASE_CONFLICT_IPS", default_value_t = true, action = clap::ArgAction::Set)]
    pub release_conflict_ips: bool,
    /// Port of the health probes /v1/runtime/{startup,liveness,readiness}; 0 switches them off. In
    /// standalone mode on loopback only [default: 5710, if it is free]
    #[arg(long, value_name = "PORT", env = "SPIDERPOOL_HEALTH_PORT")]
    pub health_port: Option<u16>,
    /// Count what the agent does, and serve it to Prometheus
    #[arg(long, value_name = "BOOL", env = "SPIDERPOOL_ENABLED_METRIC", default_value_t = false, action = clap::ArgAction::Set)]
    pub enable_metrics: bool,
    /// Port of the metrics, with --enable-metrics true; 0 switches it off. In standalone mode on
    /// loopback only [default: 5711, if it is free]
    #[arg(long, value_name = "PORT", env = "SPIDERPOOL_METRIC_HTTP_PORT")]
    pub metrics_port: Option<u16>,
    /// After so many seconds each watch of the API is opened anew; one that says nothing for 5 s
    /// longer is taken for dead. Stay below the time after which firewalls forget connections
    #[arg(long, value_name = "SECONDS", env = "SPIDERPOOL_WATCH_SECONDS", default_value_t = Waits::WATCH_SECONDS,
        value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub watch_seconds: u32,
    /// What to log: error, warn, info, debug, trace, or directives such as info,kube=debug
    #[arg(
        long,
        value_name = "LEVEL",
        env = "SPIDERPOOL_LOG_LEVEL",
        default_value = "info"
    )]
    pub log_level: String,
}

/// The name of this node cannot be found out.
#[derive(Debug, thiserror::Error)]
#[error("cannot read this host's name; give the node's with --node-name")]
pub struct NodeNameError(#[source] std::io::Error);

impl NodeArgs {
    /// What the flows are told.
    ///
    /// # Errors
    /// [`NodeNameError`].
    pub fn settings(&self) -> Result<Settings, NodeNameError> {
        let node = match &self.node_name {
            Some(name) => name.clone(),
            None => paths::hostname().map_err(NodeNameError)?,
        };
        let named = [&self.agent_namespace, &self.former_agent_namespace];
        let mut named = named.into_iter().flatten().filter(|name| !name.is_empty());
        let usual = Settings::new(&node);
        Ok(Settings {
            standalone: false,
            enable_ipv4: self.enable_ipv4,
            enable_ipv6: self.enable_ipv6,
            record_cap: self.max_allocated_ips,
            agent_namespace: named.next().unwrap_or(&usual.agent_namespace).clone(),
            cluster_network: self.cluster_network.clone(),
            release_conflicts: self.release_conflict_ips,
            ..usual
        })
    }

    /// Where health and metrics are served.
    #[must_use]
    pub fn http(&self, reach: Reach) -> HttpSettings {
        let port = |asked: Option<u16>, usual| match asked {
            None => Port::Usual(usual),
            Some(0) => Port::Off,
            Some(number) => Port::Wanted(number),
        };
        HttpSettings {
            reach,
            health: port(self.health_port, HEALTH_PORT),
            metrics: match self.enable_metrics {
                true => port(self.metrics_port, METRICS_PORT),
                false => Port::Off,
            },
        }
    }

    /// Where files are.
    #[must_use]
    pub fn paths(&self) -> Paths {
        let paths = Paths::new(&self.run_dir);
        match &self.socket {
            Some(socket) => paths.with_socket(socket.clone()),
            None => paths,
        }
    }
}

/// A listening address, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listen {
    /// Here.
    On(SocketAddr),
    /// Nowhere.
    Off,
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "0" {
            return Ok(Self::Off);
        }
        text.parse()
            .map(Self::On)
            .map_err(|_| "expected an address such as 127.0.0.1:16443, or 0".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(line.split(' '))
    }

    #[test]
    fn the_command_line_is_sound_and_explains_itself() {
        Cli::command().debug_assert();
        let help = Cli::command().render_long_help().to_string();
        assert!(
            help.contains("standalone") && help.contains("daemon"),
            "{help}"
        );
    }

    #[test]
    fn ports_are_the_usual_ones_unless_asked_for() {
        let http = |words: &str| {
            let line = format!("agent standalone --node-name n1 {words}");
            let Mode::Standalone(args) = parse(line.trim_end()).unwrap().mode else {
                panic!("another mode");
            };
            let http = args.node.http(Reach::Loopback);
            (http.health, http.metrics)
        };
        assert_eq!(http(""), (Port::Usual(5710), Port::Off));
        let on = "--enable-metrics true";
        assert_eq!(http(on), (Port::Usual(5710), Port::Usual(5711)));
        let asked = format!("{on} --health-port 0 --metrics-port 9000");
        assert_eq!(http(&asked), (Port::Off, Port::Wanted(9000)));
        // Nobody wants metrics: the port does not matter.
        assert_eq!(http("--metrics-port 9000").1, Port::Off);
    }

    #[test]
    fn defaults_suit_a_fresh_machine_and_flags_win() {
        let Mode::Standalone(args) = parse("agent standalone --node-name n1").unwrap().mode else {
            panic!("another mode");
        };
        assert_eq!(args.dir.to_str(), Some("/etc/spiderpool"));
        assert_eq!(args.state.to_str(), Some("/var/lib/spiderpool/state.redb"));
        assert_eq!(
            args.api_listen,
            Listen::On("127.0.0.1:16443".parse().unwrap())
        );
        let settings = args.node.settings().unwrap();
        assert_eq!((settings.node.as_str(), settings.enable_ipv6), ("n1", true));
        let line = "agent daemon --kubeconfig /k --node-name n2 --enable-ipv6 false --run-dir /r";
        let Mode::Daemon(args) = parse(line).unwrap().mode else {
            panic!("another mode");
        };
        assert!(!args.node.settings().unwrap().enable_ipv6);
        assert!(
            args.node
                .paths()
                .socket_path()
                .ends_with("r/spiderpool.sock")
        );
    }

    /// Spec api 4.3 names the variable; an older name still counts.
    #[test]
    fn the_agents_namespace_comes_from_where_the_pod_says() {
        let command = Cli::command();
        for mode in command.get_subcommands() {
            let variable = |name: &str| {
                let mut all = mode.get_arguments();
                let found = all.find(|one| one.get_id() == name).unwrap();
                found.get_env().and_then(|env| env.to_str()).unwrap()
            };
            assert_eq!(variable("agent_namespace"), "SPIDERPOOL_POD_NAMESPACE");
            assert_eq!(
                variable("former_agent_namespace"),
                "SPIDERPOOL_AGENT_NAMESPACE"
            );
        }
        for (flags, want) in [
            ("", "kube-system"),
            ("--agent-namespace a --former-agent-namespace b", "a"),
            ("--agent-namespace= --former-agent-namespace b", "b"),
            (
                "--agent-namespace= --former-agent-namespace=",
                "kube-system",
            ),
        ] {
            let line = format!("agent daemon --node-name n1 {flags}");
            let Mode::Daemon(args) = parse(line.trim_end()).unwrap().mode else {
                panic!("another mode");
            };
            assert_eq!(
                args.node.settings().unwrap().agent_namespace,
                want,
                "{flags}"
            );
        }
    }

    #[test]
    fn impossible_values_are_refused() {
        for line in [
            "agent",
            "agent standalone --api-listen here",
            "agent standalone --max-allocated-ips 0",
            "agent standalone --enable-ipv6 perhaps",
            "agent standalone --health-port 70000",
            "agent standalone --enable-metrics maybe",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
        assert_eq!("0".parse(), Ok(Listen::Off));
    }
}
