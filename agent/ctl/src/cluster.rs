//! Finding the API server and reading from it. Touches kubeconfig files and the network.

use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::core::DeserializeGuard;
use kube::{Api, Client, Config, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use spiderpool_api::endpoint::SpiderEndpoint;
use spiderpool_api::ippool::SpiderIPPool;
use spiderpool_api::public_url::without_secrets;
use spiderpool_api::reserved_ip::SpiderReservedIP;

/// What a standalone agent writes for local tools.
const STANDALONE: &str = "/etc/spiderpool/kubeconfig";
/// A person waits: no answer after this is an answer.
const TIMEOUT: Duration = Duration::from_secs(15);

/// No usable API server.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FindError {
    /// A kubeconfig that can't be used.
    #[error("cannot use kubeconfig {}: name another with --kubeconfig or KUBECONFIG, or run as a user who may read it", path.display())]
    Kubeconfig {
        /// File, or the variable's files.
        path: PathBuf,
        /// Cause.
        source: KubeconfigError,
    },
    /// Nothing to try.
    #[error(
        "no API server to ask: {STANDALONE} and ~/.kube/config do not exist and this is not a Pod; name a kubeconfig with --kubeconfig or KUBECONFIG"
    )]
    Nowhere,
    /// The file, or `HTTPS_PROXY`, names a proxy, which the client cannot use.
    #[error(
        "{server} is reached without a proxy only: unset HTTPS_PROXY, or take proxy-url out of the kubeconfig, whichever names {proxy}"
    )]
    Proxy {
        /// URL.
        server: String,
        /// URL, without its password.
        proxy: String,
    },
    /// TLS or credentials.
    #[error(
        "cannot make a client for {server}: check certificates and credentials of the kubeconfig"
    )]
    Client {
        /// URL.
        server: String,
        /// Cause.
        source: Box<kube::Error>,
    },
}

/// A list that did not come, or an object of it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ListError {
    /// No connection, or it broke.
    #[error(
        "cannot reach the API server {server}: is it running, and does the kubeconfig name the right one?"
    )]
    Unreachable {
        /// URL.
        server: String,
        /// Cause.
        source: Box<kube::Error>,
    },
    /// 401, 403.
    #[error(
        "{server} does not let this user list {what}: check the credentials of the kubeconfig and its role"
    )]
    Forbidden {
        /// URL.
        server: String,
        /// Plural of the kind.
        what: &'static str,
        /// Cause.
        source: Box<kube::Error>,
    },
    /// 404.
    #[error("{server} knows no {what}: is Spiderpool installed there?")]
    NotInstalled {
        /// URL.
        server: String,
        /// Plural of the kind.
        what: &'static str,
    },
    /// Any other answer.
    #[error("{server} did not list {what}")]
    Refused {
        /// URL.
        server: String,
        /// Plural of the kind.
        what: &'static str,
        /// Cause.
        source: Box<kube::Error>,
    },
    /// An object of another shape.
    #[error(
        "{kind} {name} is left out, it cannot be read: {reason}; look at it with kubectl get {kind} {name} -o yaml"
    )]
    Unreadable {
        /// Kind, as kubectl takes it.
        kind: &'static str,
        /// Object, with its namespace option where it has one.
        name: String,
        /// Why.
        reason: String,
    },
}

impl ListError {
    /// Whether it is the word on this object.
    pub(crate) fn is_about(&self, wanted: &str) -> bool {
        matches!(self, Self::Unreadable { name, .. } if name == wanted)
    }
}

/// One API server.
pub(crate) struct Cluster {
    server: String,
    client: Client,
}

impl Cluster {
    /// The server of `kubeconfig`, or the first place that has one.
    ///
    /// # Errors
    /// [`FindError`].
    pub(crate) async fn find(kubeconfig: Option<&Path>) -> Result<Self, FindError> {
        let mut config = config(kubeconfig).await?;
        // the library repeats 429 and 503 for minutes; a person rather sees them
        config.default_retry = false;
        config.connect_timeout = Some(TIMEOUT);
        config.read_timeout = Some(TIMEOUT);
        let server = without_secrets(&config.cluster_url.to_string());
        let server = server.trim_end_matches('/').to_owned();
        if let Some(proxy) = &config.proxy_url {
            let proxy = without_secrets(&proxy.to_string());
            return Err(FindError::Proxy { server, proxy });
        }
        match Client::try_from(config) {
            Ok(client) => Ok(Self { server, client }),
            Err(source) => Err(FindError::Client {
                server,
                source: Box::new(source),
            }),
        }
    }

    /// For questions that the library answers.
    pub(crate) const fn client(&self) -> &Client {
        &self.client
    }

    /// URL, for messages.
    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    /// That nobody answered there.
    pub(crate) fn unreachable(&self, source: Box<kube::Error>) -> ListError {
        let server = self.server.clone();
        ListError::Unreachable { server, source }
    }

    /// All pools, and a word on each that can't be read.
    ///
    /// # Errors
    /// [`ListError`].
    pub(crate) async fn pools(&self) -> Result<Listed<SpiderIPPool>, ListError> {
        self.list("spiderippools", "spiderippool").await
    }

    /// All reservations.
    ///
    /// # Errors
    /// [`ListError`].
    pub(crate) async fn reserved(&self) -> Result<Listed<SpiderReservedIP>, ListError> {
        self.list("spiderreservedips", "spiderreservedip").await
    }

    /// All endpoints.
    ///
    /// # Errors
    /// [`ListError`].
    pub(crate) async fn endpoints(&self) -> Result<Listed<SpiderEndpoint>, ListError> {
        self.list("spiderendpoints", "spiderendpoint").await
    }

    /// A Pod.
    ///
    /// # Errors
    /// [`ListError`].
    pub(crate) async fn pod(&self, namespace: &str, name: &str) -> Result<Option<Pod>, ListError> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let read = api.get_opt(name).await;
        read.map_err(|error| self.list_error("pods", error))
    }

    /// The Pod with this UID that a virtual machine of the namespace runs in.
    ///
    /// # Errors
    /// [`ListError`].
    pub(crate) async fn launcher(
        &self,
        namespace: &str,
        uid: &str,
    ) -> Result<Option<Pod>, ListError> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let launchers = ListParams::default().labels("kubevirt.io=virt-launcher");
        let listed = api.list(&launchers).await;
        let listed = listed.map_err(|error| self.list_error("pods", error))?;
        let is_it = |pod: &Pod| pod.metadata.uid.as_deref() == Some(uid);
        Ok(listed.items.into_iter().find(is_it))
    }

    async fn list<K>(&self, what: &'static str, kind: &'static str) -> Result<Listed<K>, ListError>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug,
    {
        let api: Api<DeserializeGuard<K>> = Api::all(self.client.clone());
        let listed = api.list(&ListParams::default()).await;
        let listed = listed.map_err(|error| self.list_error(what, error))?;
        let (mut objects, mut unreadable) = (Vec::new(), Vec::new());
        for item in listed {
            let name = match item.meta().namespace.as_deref() {
                Some(namespace) => format!("{} -n {namespace}", item.name_any()),
                None => item.name_any(),
            };
            match item.0 {
                Ok(object) => objects.push(object),
                Err(error) => unreadable.push(ListError::Unreadable {
                    kind,
                    name,
                    reason: error.error,
                }),
            }
        }
        Ok(Listed {
            objects,
            unreadable,
        })
    }

    fn list_error(&self, what: &'static str, error: kube::Error) -> ListError {
        let server = self.server.clone();
        let code = match &error {
            kube::Error::Api(status) => Some(status.code),
            _ => None,
        };
        let source = Box::new(error);
        match code {
            Some(401 | 403) => ListError::Forbidden {
                server,
                what,
                source,
            },
            Some(404) => ListError::NotInstalled { server, what },
            None if is_unreachable(&source) => self.unreachable(source),
            _ => ListError::Refused {
                server,
                what,
                source,
            },
        }
    }
}

/// Whether there was no answer at all.
pub(crate) const fn is_unreachable(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Service(_) | kube::Error::HyperError(_))
}

/// What a list came to.
pub(crate) struct Listed<K> {
    /// The objects.
    pub(crate) objects: Vec<K>,
    /// A word on each that is not among them.
    pub(crate) unreadable: Vec<ListError>,
}

async fn config(kubeconfig: Option<&Path>) -> Result<Config, FindError> {
    if let Some(path) = kubeconfig {
        return of_file(path).await;
    }
    let variable = || PathBuf::from(std::env::var_os("KUBECONFIG").unwrap_or_default());
    match Kubeconfig::from_env() {
        Ok(Some(found)) => return of_kubeconfig(found, &variable()).await,
        Ok(None) => {}
        Err(source) => {
            return Err(FindError::Kubeconfig {
                path: variable(),
                source,
            });
        }
    }
    if let Some(found) = of_file_if_there(Path::new(STANDALONE)).await? {
        return Ok(found);
    }
    if let Ok(found) = Config::incluster() {
        return Ok(found);
    }
    let home = std::env::home_dir().map(|home| home.join(".kube/config"));
    let found = match home {
        Some(path) => of_file_if_there(&path).await?,
        None => None,
    };
    found.ok_or(FindError::Nowhere)
}

async fn of_file_if_there(path: &Path) -> Result<Option<Config>, FindError> {
    match of_file(path).await {
        Err(FindError::Kubeconfig {
            source: KubeconfigError::ReadConfig(error, _),
            ..
        }) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        found => found.map(Some),
    }
}

async fn of_file(path: &Path) -> Result<Config, FindError> {
    match Kubeconfig::read_from(path) {
        Ok(found) => of_kubeconfig(found, path).await,
        Err(source) => Err(FindError::Kubeconfig {
            path: path.to_owned(),
            source,
        }),
    }
}

async fn of_kubeconfig(found: Kubeconfig, path: &Path) -> Result<Config, FindError> {
    Config::from_custom_kubeconfig(found, &KubeConfigOptions::default())
        .await
        .map_err(|source| FindError::Kubeconfig {
            path: path.to_owned(),
            source,
        })
}
