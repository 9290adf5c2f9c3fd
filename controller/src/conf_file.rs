//! `conf.yml` of agent and controller: the switches of spec api 4.1, and the provider with the client
//! made of it (spec iaas 2.2-2.5). Reads that file and the CA file it names, at start; what is wrong
//! in them keeps the process from starting.

mod advertisement;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Deserializer};
use spiderpool_iaas::client::{Client, ClientError, Endpoint};
use spiderpool_iaas::config::{ConfigError, Section};
use spiderpool_iaas::provider::{Generation, Provider};
use spiderpool_ipam::sticky::Switches;

use crate::chain::full;
use crate::regular_file;
pub use advertisement::{
    AdvertisementRule, AdvertisementRules, AgentSection, BareSelector, NodeSelector,
    ResourceAdvertisement, ResourcePlugin,
};

/// Longest `conf.yml` and CA bundle, bytes.
const MAX_FILE: u64 = 1 << 20;

/// Default of `--config-path`: where the ConfigMap `spiderpool-conf` is mounted.
pub const DEFAULT_CONFIG: &str = "/tmp/spiderpool/config-map/conf.yml";

/// The keys that are read; others are ignored. One that is absent or null has the chart's default.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Conf {
    /// IPv4 is in use.
    #[serde(rename = "enableIPv4", deserialize_with = "or_true")]
    pub enable_ipv4: bool,
    /// IPv6 is in use.
    #[serde(rename = "enableIPv6", deserialize_with = "or_true")]
    pub enable_ipv6: bool,
    /// Pods of a StatefulSet keep their addresses.
    #[serde(deserialize_with = "or_true")]
    pub enable_stateful_set: bool,
    /// KubeVirt machines keep their addresses.
    #[serde(rename = "enableKubevirtStaticIP", deserialize_with = "or_true")]
    pub enable_kubevirt_static_ip: bool,
    /// Endpoints that no record answers for are collected.
    #[serde(deserialize_with = "or_false")]
    pub enable_clean_outdated_endpoint: bool,
    /// A pool with records must not be deleted.
    #[serde(deserialize_with = "or_true")]
    pub enable_validating_resources_deleted_webhook: bool,
    /// What the Pod webhook puts into Pods.
    #[serde(deserialize_with = "or_default")]
    pub pod_resource_inject: PodResourceInject,
    /// Pools belong to the subnet of their network.
    #[serde(deserialize_with = "or_true")]
    pub enable_spider_subnet: bool,
    /// What agents advertise to the scheduler.
    #[serde(deserialize_with = "or_default")]
    pub agent: AgentSection,
    #[serde(deserialize_with = "or_default")]
    iaas_network_provider: Section,
}

/// Key `podResourceInject`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodResourceInject {
    /// The Pod webhook is on.
    #[serde(deserialize_with = "or_false")]
    pub enabled: bool,
    /// Namespaces that are left alone.
    pub namespaces_exclude: Vec<String>,
    /// The only namespaces that are not left alone; empty: all.
    #[serde(deserialize_with = "or_default")]
    pub namespaces_include: Vec<String>,
}

impl Default for PodResourceInject {
    fn default() -> Self {
        let excluded = [
            "kube-system",
            "spiderpool",
            "metallb-system",
            "istio-system",
        ];
        Self {
            enabled: false,
            namespaces_exclude: excluded.map(str::to_owned).to_vec(),
            namespaces_include: Vec::new(),
        }
    }
}

impl Default for Conf {
    fn default() -> Self {
        Self {
            enable_ipv4: true,
            enable_ipv6: true,
            enable_stateful_set: true,
            enable_kubevirt_static_ip: true,
            enable_clean_outdated_endpoint: false,
            enable_validating_resources_deleted_webhook: true,
            pod_resource_inject: PodResourceInject::default(),
            enable_spider_subnet: true,
            agent: AgentSection::default(),
            iaas_network_provider: Section::default(),
        }
    }
}

fn or_true<'de, D: Deserializer<'de>>(value: D) -> Result<bool, D::Error> {
    Ok(Option::deserialize(value)?.unwrap_or(true))
}

fn or_false<'de, D: Deserializer<'de>>(value: D) -> Result<bool, D::Error> {
    Ok(Option::deserialize(value)?.unwrap_or(false))
}

fn or_default<'de, T, D>(value: D) -> Result<T, D::Error>
where
    T: Deserialize<'de> + Default,
    D: Deserializer<'de>,
{
    Ok(Option::deserialize(value)?.unwrap_or_default())
}

/// The settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfError {
    /// The file.
    #[error("cannot read {}", path.display())]
    File {
        /// Where it is.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Not YAML, or not of this shape.
    #[error("{} is not the YAML of a conf.yml: {reason}", path.display())]
    Yaml {
        /// Where it is.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A selector of the resources.
    #[error(transparent)]
    Selector(#[from] BareSelector),
    /// A value of the provider's section.
    #[error("IaaS provider configuration validation failed")]
    Provider(#[from] ConfigError),
    /// No client can be made of it.
    #[error("Failed to create IaaS client")]
    Client(#[from] ClientError),
}

impl Conf {
    /// Reads the file; one that does not exist sets nothing. Blocks on the disk.
    ///
    /// # Errors
    /// [`ConfError`] names the file.
    pub fn read(path: &Path) -> Result<Self, ConfError> {
        let read = regular_file::read(path, MAX_FILE)
            .and_then(|text| String::from_utf8(text).map_err(io::Error::other));
        let text = match read {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(source) => {
                let path = path.to_owned();
                return Err(ConfError::File { path, source });
            }
        };
        Self::parse(&text, path)
    }

    /// The same of a text that is there already, as from a ConfigMap; `path` is for messages.
    ///
    /// # Errors
    /// As [`Conf::read`].
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfError> {
        let conf: Option<Self> = serde_saphyr::from_str(text).map_err(|error| ConfError::Yaml {
            path: path.to_owned(),
            // the quoted lines would be several in the log
            reason: error.without_snippet().to_string(),
        })?;
        let mut conf = conf.unwrap_or_default();
        let lenient = conf.is_generation_1();
        conf.agent.network_resource_plugin.settle(lenient)?;
        Ok(conf)
    }

    /// Whose addresses outlive a Pod.
    #[must_use]
    pub const fn sticky(&self) -> Switches {
        Switches {
            stateful_set: self.enable_stateful_set,
            kubevirt: self.enable_kubevirt_static_ip,
        }
    }

    /// Contract of the provider that is configured, if one is.
    #[must_use]
    pub fn generation(&self) -> Option<Generation> {
        self.iaas_network_provider.generation()
    }

    /// Whether the provider is one of contract version 1.
    #[must_use]
    pub fn is_generation_1(&self) -> bool {
        self.generation() == Some(Generation::First)
    }

    /// Host NICs that agents leave out of what they publish of their nodes.
    #[must_use]
    pub fn excluded_nics(&self) -> &[String] {
        &self.iaas_network_provider.exclude_report_nics
    }

    /// The provider that it configures, if it does. Blocks on the disk, and says in the log what came
    /// of it.
    ///
    /// # Errors
    /// [`ConfError`] names the value.
    pub fn provider(&self) -> Result<Option<Arc<dyn Provider>>, ConfError> {
        match self.client() {
            Ok(None) => Ok(None),
            Ok(Some(client)) => {
                tracing::info!("IaaS client created successfully");
                Ok(Some(Arc::new(client)))
            }
            Err(error) => {
                tracing::error!("{}", full(&error));
                Err(error)
            }
        }
    }

    fn client(&self) -> Result<Option<Client>, ConfError> {
        let read = |ca: &Path| regular_file::read(ca, MAX_FILE);
        let Some(config) = self.iaas_network_provider.validate(read)? else {
            return Ok(None);
        };
        let endpoint = match (Endpoint::of_config(&config), config.generation) {
            (Err(ClientError::Url { url: value, reason }), Generation::First) => {
                return Err(ConfigError::ServerUrl { value, reason }.into());
            }
            (endpoint, _) => endpoint?,
        };
        let client = Client::new(endpoint, config.timeout)?;
        Ok(Some(client.of_generation(config.generation)))
    }
}

/// The file, and the provider if one is configured. Blocks on the disk, and says in the log what came
/// of it.
///
/// # Errors
/// [`ConfError`] names file and value.
pub fn read(path: &Path) -> Result<(Conf, Option<Arc<dyn Provider>>), ConfError> {
    let conf = Conf::read(path).inspect_err(|error| tracing::error!("{}", full(error)))?;
    let provider = conf.provider()?;
    Ok((conf, provider))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(text: &str) -> Result<bool, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("conf.yml");
        std::fs::write(&path, text).unwrap();
        let made = read(&path).map_err(|error| full(&error));
        made.map(|(_, provider)| provider.is_some())
    }

    #[test]
    fn a_file_may_be_missing_empty_or_about_other_things() {
        let dir = tempfile::tempdir().unwrap();
        assert!(read(&dir.path().join("none")).unwrap().1.is_none());
        for text in [
            "",
            "enableIPv4: true\n",
            "iaasNetworkProvider:\n",
            "iaasNetworkProvider: {httpRequestTimeout: abc}",
            "iaasNetworkProvider: {enabled: false, service: {name: p, namespace: n}}",
            "iaasNetworkProvider: {enabled: false, serverUrl: 'http://p'}",
        ] {
            assert_eq!(judged(text), Ok(false), "{text:?}");
        }
    }

    #[test]
    fn switches_have_the_charts_defaults() {
        let read = |text: &str| {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("conf.yml");
            std::fs::write(&path, text).unwrap();
            Conf::read(&path).map_err(|error| full(&error))
        };
        for text in [
            "",
            "enableIPv4:\nenableCleanOutdatedEndpoint: null\npodResourceInject:\n",
        ] {
            assert_eq!(read(text), Ok(Conf::default()), "{text:?}");
        }
        let conf = read(
            "{enableIPv6: false, enableStatefulSet: false, enableKubevirtStaticIP: false, \
            enableCleanOutdatedEndpoint: true, enableValidatingResourcesDeletedWebhook: false, \
            podResourceInject: {enabled: true, namespacesInclude: [shop]}}",
        );
        let conf = conf.unwrap();
        assert!(conf.enable_ipv4 && !conf.enable_ipv6 && conf.enable_clean_outdated_endpoint);
        assert_eq!(conf.sticky(), Switches::default());
        assert!(!conf.enable_validating_resources_deleted_webhook);
        let inject = &conf.pod_resource_inject;
        assert!(inject.enabled && inject.namespaces_include == ["shop"]);
        assert_eq!(inject.namespaces_exclude.len(), 4);
        let wrong = read("enableIPv4: perhaps").unwrap_err();
        assert!(wrong.contains("conf.yml is not the YAML"), "{wrong}");
    }

    #[test]
    fn a_service_or_a_url_switches_the_provider_on() {
        for section in [
            "{serverUrl: 'http://p.n.svc:80'}",
            "{enabled: true, serverUrl: 'http://p.n.svc:80'}",
            "{serverUrl: 'https://127.0.0.1:8443', httpRequestTimeout: 20s}",
            "{service: {name: p, namespace: n}}",
            "{url: 'http://127.0.0.1:8080', httpRequestTimeout: 3s}",
        ] {
            assert_eq!(judged(&format!("iaasNetworkProvider: {section}")), Ok(true));
        }
    }

    /// Seed 000 writes labels without `matchLabels`.
    #[test]
    fn a_bare_selector_is_read_under_the_first_generation_alone() {
        let rules = |iaas: &str, selector: &str| {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("conf.yml");
            let text = format!(
                "iaasNetworkProvider: {iaas}\nagent: {{networkResourcePlugin: {{enabled: true, resourceAdvertisement: \
                {{masterNIC: {{rules: [{{nodeSelector: {selector}}}]}}}}}}}}\n"
            );
            std::fs::write(&path, text).unwrap();
            let conf = Conf::read(&path).map_err(|error| full(&error))?;
            let advertised = conf.agent.network_resource_plugin.resource_advertisement;
            Ok::<_, String>(advertised.master_nic.rules[0].node_selector.clone())
        };
        let (first, second) = ("{serverUrl: 'http://p'}", "{}");
        let linux = NodeSelector::Labels(spiderpool_api::selector::LabelSelector {
            match_labels: [("kubernetes.io/os".to_owned(), "linux".to_owned())].into(),
            ..Default::default()
        });
        for (iaas, selector) in [
            (first, "{kubernetes.io/os: linux}"),
            (first, "{matchLabels: {kubernetes.io/os: linux}}"),
            (
                second,
                "{matchLabels: {kubernetes.io/os: linux}, matchExpressions: []}",
            ),
        ] {
            assert_eq!(
                rules(iaas, selector).as_ref(),
                Ok(&linux),
                "{iaas} {selector}"
            );
        }
        for empty in ["{}", "null"] {
            assert_eq!(rules(second, empty), Ok(NodeSelector::default()));
        }
        assert_eq!(
            rules(second, "{kubernetes.io/os: linux}").unwrap_err(),
            "invalid agent.networkResourcePlugin.resourceAdvertisement.masterNIC.rules[0].nodeSelector: \
            kubernetes.io/os is no key of a label selector; labels belong under matchLabels"
        );
        for mixed in ["{matchLabels: {a: b}, c: d}", "{a: [b]}", "[a]"] {
            assert!(
                rules(first, mixed).unwrap_err().contains("not the YAML"),
                "{mixed}"
            );
        }
    }

    #[test]
    fn a_pipe_or_a_device_holds_the_start_up_no_more_than_a_mistake() {
        let dir = tempfile::tempdir().unwrap();
        let (pipe, huge) = (dir.path().join("pipe"), dir.path().join("huge"));
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let file = std::fs::File::create(&huge).unwrap();
        file.set_len(MAX_FILE + 1).unwrap();
        for (path, reason) in [
            (pipe.as_path(), "it is not a regular file"),
            (Path::new("/dev/zero"), "it is not a regular file"),
            (&huge, "it is larger than 1048576 bytes"),
        ] {
            let shown = path.display();
            let error = read(path).err().unwrap();
            assert_eq!(full(&error), format!("cannot read {shown}: {reason}"));
            let section = format!(
                "iaasNetworkProvider: {{service: {{name: p, namespace: n}}, tls: {{caFile: {shown}}}}}"
            );
            let text = format!(
                "IaaS provider configuration validation failed: invalid iaasNetworkProvider.tls.caFile \"{shown}\": {reason}"
            );
            assert_eq!(judged(&section), Err(text));
        }
    }

    #[test]
    fn mistakes_about_the_first_generation_have_known_words_too() {
        let invalid = "IaaS provider configuration validation failed: invalid iaasNetworkProvider.";
        let bad = |url: &str| format!("{invalid}serverUrl {url:?}: ");
        for (section, text) in [
            (
                "{serverUrl: 'ftp://p'}",
                bad("ftp://p") + "the scheme is neither http nor https",
            ),
            (
                "{serverUrl: 'p:80'}",
                bad("p:80") + "the scheme is neither http nor https",
            ),
            (
                "{serverUrl: 'http://p/v1'}",
                bad("http://p/v1") + "it has a path",
            ),
            (
                "{serverUrl: 'http://p:0'}",
                bad("http://p:0") + "the port is not in 1-65535",
            ),
            (
                "{serverUrl: 'http://u:geheim@p'}",
                bad("http://***@p") + "it has a user name; a provider is told none",
            ),
            (
                "{serverUrl: 'http://p', httpRequestTimeout: 0s}",
                format!("{invalid}httpRequestTimeout \"0s\": timeout must be positive"),
            ),
            (
                "{serverUrl: 'http://p', service: {name: q, namespace: n}}",
                bad("http://p") + "iaasNetworkProvider.service.name is set too; remove one of them",
            ),
        ] {
            assert_eq!(
                judged(&format!("iaasNetworkProvider: {section}")),
                Err(text)
            );
        }
    }

    #[test]
    fn mistakes_keep_the_agent_from_starting_in_known_words() {
        let invalid = "IaaS provider configuration validation failed: invalid iaasNetworkProvider.";
        for (section, text) in [
            ("{service: {name: p, namespace: n}, httpRequestTimeout: 2m}",
             format!("{invalid}httpRequestTimeout \"2m\": timeout 2m0s must be less than static limit 2m0s")),
            ("{service: {name: p, namespace: n}, httpRequestTimeout: abc}",
             format!("{invalid}httpRequestTimeout \"abc\": time: invalid duration \"abc\"")),
            ("{service: {name: P, namespace: n}}",
             format!("{invalid}service.name \"P\": not a DNS-1123 label")),
            ("{url: 'ftp://x'}",
             "Failed to create IaaS client: provider URL \"ftp://x\" is not like https://host:port: the scheme is neither http nor https".to_owned()),
        ] {
            assert_eq!(judged(&format!("iaasNetworkProvider: {section}")), Err(text));
        }
        for text in [
            "iaasNetworkProvider: [",
            "iaasNetworkProvider:\n  service: {name: p,\n    port: eight}\n",
        ] {
            let yaml = judged(text).unwrap_err();
            assert!(yaml.contains("conf.yml is not the YAML"), "{yaml}");
            assert!(yaml.contains("line ") && !yaml.contains('\n'), "{yaml}");
        }
    }
}
