//! `spiderpoolctl clean`: takes everything of Spiderpool out of a cluster, as the chart's last job does
//! (spec api 5.2): webhooks first, so that nothing of ours refuses the rest, then the objects with our
//! finalizer, then the kinds.
//!
//! What is not there is done. What cannot be deleted is named, and the others go on, unless nobody
//! answers. While an object is left the kinds stay: agents and the controller have to read them to free
//! what a provider's finalizer waits for.

use std::error::Error;
use std::fmt::Debug;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::{GroupVersionKind, PartialObjectMeta};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use spiderpool_api::allocation::Records;
use spiderpool_api::names;
use spiderpool_controller::chain::full;
use spiderpool_controller::followed::has_no_kind;
use spiderpool_controller::reconcile::finalizer;
use tokio::time::{Instant, sleep};

use crate::cluster::{Cluster, is_unreachable};
use crate::{complain, output};

/// Kind of pools.
const POOL: &str = "SpiderIPPool";
/// Endpoints before pools, pools before subnets.
const KINDS: [&str; 6] = [
    "SpiderEndpoint",
    POOL,
    "SpiderSubnet",
    "SpiderReservedIP",
    "SpiderMultusConfig",
    "SpiderCoordinator",
];
/// Objects of one page.
const PAGE: u32 = 500;
/// Objects, and records of a pool, that a message names.
const NAMED: usize = 3;
/// Between two looks at what is left.
const PAUSE: Duration = Duration::from_millis(500);
/// Group of the SR-IOV operator's kinds.
const SRIOV_GROUP: &str = "sriovnetwork.openshift.io";
/// The one of them that stays.
const SRIOV_CONFIGS: &str = "sriovoperatorconfigs";
/// Configurations of its webhooks.
const SRIOV_WEBHOOKS: [&str; 2] = [
    "sriov-operator-webhook-config",
    "network-resources-injector-config",
];
/// The chart's first job.
const INIT_JOB: &str = "spiderpool-init";

/// What `clean` is told.
#[derive(Debug, Args)]
pub(crate) struct CleanArgs {
    /// Really: every pool, subnet, endpoint, reservation and network configuration of the cluster goes,
    /// and the kinds with them; Pods keep their addresses and nobody knows of them any more
    #[arg(long, required = true)]
    yes: bool,
    /// The ValidatingWebhookConfiguration
    #[arg(long, value_name = "NAME", default_value = "spiderpool-controller")]
    validate: String,
    /// The MutatingWebhookConfiguration
    #[arg(long, value_name = "NAME", default_value = "spiderpool-controller")]
    mutating: String,
    /// Also webhooks and kinds of the SR-IOV operator, where the chart has installed it
    #[arg(long)]
    sriov: bool,
    /// Seconds that the objects of a kind may take to go: somebody else's finalizer may hold them
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    wait: u64,
    /// Namespace of the chart's first job; without it no job is deleted
    #[arg(long, value_name = "NAME", env = "SPIDERPOOL_NAMESPACE")]
    namespace: Option<String>,
}

/// Something is left.
#[derive(Debug, thiserror::Error)]
enum Left {
    #[error("cannot {tried} {what}")]
    Api {
        tried: &'static str,
        what: String,
        source: Box<kube::Error>,
    },
    #[error(
        "still there after {seconds} s: {what}. A finalizer goes when its owner takes it off, that of a provider once no address is recorded: end the Pods and give the command again"
    )]
    Held { what: String, seconds: u64 },
    #[error(
        "the CustomResourceDefinitions stay until the last object is gone: without them nobody frees the addresses of Pods that end"
    )]
    Kinds,
}

/// Not everything is gone.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0} of the steps failed, see above; what is gone stays gone, and the command can be given again"
)]
struct Incomplete(usize);

/// What came of the steps so far.
struct Steps<'a> {
    cluster: &'a Cluster,
    failures: usize,
}

impl Steps<'_> {
    fn tell(&mut self, step: Result<String, Left>) -> Result<(), Box<dyn Error>> {
        match step {
            Ok(done) => drop(output::print(&format!("{done}\n"))?),
            // the next step would not get further
            Err(Left::Api { source, .. }) if is_unreachable(&source) => {
                return Err(self.cluster.unreachable(source).into());
            }
            Err(error) => {
                self.failures += 1;
                complain("left", &full(&error));
            }
        }
        Ok(())
    }

    async fn webhooks(&mut self, args: &CleanArgs) -> Result<(), Box<dyn Error>> {
        let client = self.cluster.client();
        let sriov = SRIOV_WEBHOOKS.iter().filter(|_| args.sriov).copied();
        for name in std::iter::once(args.validate.as_str()).chain(sriov.clone()) {
            let all: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
            self.tell(delete(&all, name).await)?;
        }
        for name in std::iter::once(args.mutating.as_str()).chain(sriov) {
            let all: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
            self.tell(delete(&all, name).await)?;
        }
        Ok(())
    }

    /// Whether no object of ours is left.
    async fn objects(&mut self, wait: Duration) -> Result<bool, Box<dyn Error>> {
        let before = self.failures;
        for kind in KINDS {
            let step = empty(self.cluster.client(), kind, wait).await;
            self.tell(step)?;
        }
        Ok(self.failures == before)
    }

    async fn kinds(&mut self, which: Which) -> Result<(), Box<dyn Error>> {
        let client = self.cluster.client();
        if !which.ours {
            self.tell(Err(Left::Kinds))?;
        }
        match definitions(client, which).await {
            Ok(names) => {
                for name in names {
                    let all: Api<CustomResourceDefinition> = Api::all(client.clone());
                    self.tell(delete(&all, &name).await)?;
                }
                Ok(())
            }
            Err(error) => self.tell(Err(error)),
        }
    }
}

pub(crate) async fn run(cluster: &Cluster, args: &CleanArgs) -> Result<ExitCode, Box<dyn Error>> {
    let mut steps = Steps {
        cluster,
        failures: 0,
    };
    steps.webhooks(args).await?;
    let which = Which {
        ours: steps.objects(Duration::from_secs(args.wait)).await?,
        sriov: args.sriov,
    };
    steps.kinds(which).await?;
    if let Some(namespace) = &args.namespace {
        let jobs: Api<Job> = Api::namespaced(cluster.client().clone(), namespace);
        steps.tell(delete(&jobs, INIT_JOB).await)?;
    }
    if steps.failures > 0 {
        return Err(Incomplete(steps.failures).into());
    }
    Ok(ExitCode::SUCCESS)
}

async fn delete<K>(api: &Api<K>, name: &str) -> Result<String, Left>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let what = format!("{} {name}", K::kind(&()));
    match api.delete(name, &DeleteParams::background()).await {
        Ok(_) => Ok(format!("{what} deleted")),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(format!("{what} is not there")),
        Err(source) => Err(Left::Api {
            tried: "delete",
            what,
            source: Box::new(source),
        }),
    }
}

/// Deletes all objects of a kind of ours, in all namespaces, and waits until they are gone.
async fn empty(client: &Client, kind: &str, wait: Duration) -> Result<String, Left> {
    let of = GroupVersionKind::gvk(names::GROUP, names::VERSION, kind);
    let resource = ApiResource::from_gvk(&of);
    let all: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let (begun, mut deleted) = (Instant::now(), 0);
    loop {
        let page = all.list_metadata(&ListParams::default().limit(PAGE)).await;
        let page = match page {
            Err(error) if has_no_kind(&error) => return Ok(format!("{kind} is no kind there")),
            page => page.map_err(|source| Left::Api {
                tried: "list",
                what: format!("all {kind}s"),
                source: Box::new(source),
            })?,
        };
        if page.items.is_empty() {
            return Ok(format!("{deleted} {kind}s deleted"));
        }
        // API servers ask webhooks for a moment after their configuration is gone.
        let mut failed = None;
        for object in &page.items {
            let api: Api<DynamicObject> = match object.namespace() {
                Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &resource),
                None => all.clone(),
            };
            match end(&api, object).await {
                Ok(asked) => deleted += usize::from(asked),
                Err((tried, source)) => failed = Some((tried, object.name_any(), source)),
            }
        }
        if begun.elapsed() > wait {
            return Err(match failed {
                Some((tried, name, source)) => Left::Api {
                    tried,
                    what: format!("{kind} {name}"),
                    source: Box::new(source),
                },
                None => Left::Held {
                    what: held(&all, kind, &page.items).await,
                    seconds: wait.as_secs(),
                },
            });
        }
        sleep(PAUSE).await;
    }
}

/// What is left of a kind, by which finalizers, and whose addresses are recorded there.
async fn held(
    all: &Api<DynamicObject>,
    kind: &str,
    objects: &[PartialObjectMeta<DynamicObject>],
) -> String {
    let mut texts = Vec::new();
    for object in objects.iter().take(NAMED) {
        let name = object.name_any();
        let mut text = match object.namespace() {
            Some(namespace) => format!("{kind} {namespace}/{name}"),
            None => format!("{kind} {name}"),
        };
        let finalizers = object.finalizers().join(", ");
        if !finalizers.is_empty() {
            text = format!("{text}, held by finalizer {finalizers}");
        }
        if let Some(recorded) = recorded(all, kind, &name).await {
            text = format!("{text}, with {recorded}");
        }
        texts.push(text);
    }
    let more = objects.len().saturating_sub(NAMED);
    if more > 0 {
        texts.push(format!("{more} more"));
    }
    texts.join("; ")
}

/// The addresses that Pods have of a pool. Listed, as the job may get no single object; without an
/// answer there is less to say.
async fn recorded(all: &Api<DynamicObject>, kind: &str, name: &str) -> Option<String> {
    if kind != POOL {
        return None;
    }
    let this = ListParams::default().fields(&format!("metadata.name={name}"));
    let pool = all.list(&this).await.ok()?.items.pop()?;
    let text = pool.data.pointer("/status/allocatedIPs")?.as_str();
    let records = Records::decode(text).ok().filter(|all| !all.is_empty())?;
    let named: Vec<String> = records
        .iter()
        .take(NAMED)
        .map(|(address, record)| format!("{address} of Pod {}", record.pod))
        .collect();
    let (count, named) = (records.iter().count(), named.join(", "));
    let such_as = if count > NAMED { "such as " } else { "" };
    Some(format!("records of {count} addresses: {such_as}{named}"))
}

/// Deleted first: nobody puts a finalizer back on what is going. Whether it was asked for now.
async fn end(
    api: &Api<DynamicObject>,
    object: &PartialObjectMeta<DynamicObject>,
) -> Result<bool, (&'static str, kube::Error)> {
    let name = object.name_any();
    if object.metadata.deletion_timestamp.is_none() {
        let asked = api.delete(&name, &DeleteParams::background()).await;
        let asked = gone_or_changed(asked.map(drop));
        return asked.map(|()| true).map_err(|error| ("delete", error));
    }
    let Some(patch) = finalizer::removal(object) else {
        return Ok(false);
    };
    let params = PatchParams::default();
    let written = api
        .patch_metadata(&name, &params, &Patch::Merge(patch))
        .await;
    let written = gone_or_changed(written.map(drop));
    written
        .map(|()| false)
        .map_err(|error| ("take the finalizer off", error))
}

/// The next look tells.
fn gone_or_changed(written: kube::Result<()>) -> kube::Result<()> {
    match written {
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        written => written,
    }
}

/// The kinds that go.
#[derive(Clone, Copy)]
struct Which {
    ours: bool,
    sriov: bool,
}

/// Names of the kinds that go.
async fn definitions(client: &Client, which: Which) -> Result<Vec<String>, Left> {
    let all: Api<CustomResourceDefinition> = Api::all(client.clone());
    let listed = all.list_metadata(&ListParams::default()).await;
    let listed = listed.map_err(|source| Left::Api {
        tried: "list",
        what: "all CustomResourceDefinitions".to_owned(),
        source: Box::new(source),
    })?;
    let names = listed.items.iter().map(ResourceExt::name_any);
    Ok(names.filter(|name| goes(name, which)).collect())
}

fn goes(definition: &str, which: Which) -> bool {
    match definition.split_once('.') {
        Some((_, names::GROUP)) => which.ours,
        Some((plural, SRIOV_GROUP)) => which.sriov && plural != SRIOV_CONFIGS,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_kinds_of_ours_go() {
        for (name, alone, with_sriov) in [
            ("spiderippools.spiderpool.spidernet.io", true, true),
            ("sriovnetworks.sriovnetwork.openshift.io", false, true),
            (
                "sriovoperatorconfigs.sriovnetwork.openshift.io",
                false,
                false,
            ),
            (
                "network-attachment-definitions.k8s.cni.cncf.io",
                false,
                false,
            ),
            ("spiderippools", false, false),
        ] {
            let goes = |ours, sriov| goes(name, Which { ours, sriov });
            assert_eq!(
                (goes(true, false), goes(true, true)),
                (alone, with_sriov),
                "{name}"
            );
            let is_foreign = !name.ends_with(names::GROUP);
            assert_eq!(goes(false, true), with_sriov && is_foreign, "{name}");
        }
    }
}
