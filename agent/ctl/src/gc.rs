//! `spiderpoolctl gc explain`: what garbage collection would do with the records of a Pod or an
//! address, and why. Asks the API as the collector does, and decides with the same function.

use std::error::Error;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Subcommand;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::ListParams;
use spiderpool_controller::conf_file::{Conf, ConfError};
use spiderpool_controller::gc::explain::{Explained, Settings, Subject, explain};
use spiderpool_controller::objects::ObjectKey;
use spiderpool_iaas::provider::Generation;
use spiderpool_ipam::gc::Knobs;
use spiderpool_ipam::sticky::Switches;

use crate::cluster::Cluster;
use crate::{Form, output, pod};

/// The chart's ConfigMap.
const CONF: &str = "spiderpool-conf";

/// What can be asked.
#[derive(Debug, Subcommand)]
pub(crate) enum GcVerb {
    /// Tell what would become of the records of a Pod or an address, and why; changes nothing
    #[command(after_help = "Columns:
  VERDICT   keep     it stays
            trace    it stays until its Pod's time is over
            free     it goes with the next scan
            unknown  something could not be read: it stays
  HOW       in which order it goes

Settings are those of the controller's conf.yml, from the ConfigMap
spiderpool-conf or a file, else the defaults with a provider of contract version
2. Its SPIDERPOOL_GC_* variables count here too.

Exit codes:
  0  told
  1  failed, or there is no such record")]
    Explain {
        /// An address, or a Pod; without a namespace in default
        #[arg(value_name = "IP|[NAMESPACE/]POD", value_parser = subject)]
        subject: Subject,
        /// The controller's conf.yml [default: that of the ConfigMap spiderpool-conf, if there is one]
        #[arg(long, value_name = "FILE")]
        config_path: Option<PathBuf>,
        /// Form of the output
        #[arg(short, long, value_enum, default_value_t = Form::Table)]
        output: Form,
    },
}

/// Nothing is recorded.
#[derive(Debug, thiserror::Error)]
#[error("no pool has a record of {0}: garbage collection has nothing to do with it")]
struct NoRecord(String);

fn subject(text: &str) -> Result<Subject, String> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(Subject::Address(address));
    }
    let (namespace, name) = pod(text).map_err(|_| "expected an address, or a Pod".to_owned())?;
    Ok(Subject::Pod(ObjectKey::new(namespace, name)))
}

pub(crate) async fn run(cluster: &Cluster, verb: &GcVerb) -> Result<ExitCode, Box<dyn Error>> {
    let GcVerb::Explain {
        subject,
        config_path,
        output: form,
    } = verb;
    let knobs = Knobs::read(|name| std::env::var(name).ok())?;
    let conf = match config_path {
        Some(path) => Some(Conf::read(path)?),
        None => published(cluster).await?,
    };
    let settings = Settings {
        sticky: conf.as_ref().map_or(Switches::ON, Conf::sticky),
        knobs,
        provider: conf.map_or(Some(Generation::Second), |conf| conf.generation()),
    };
    let explained = explain(cluster.client(), &settings, subject).await?;
    if explained.is_empty() {
        let name = match subject {
            Subject::Address(address) => address.to_string(),
            Subject::Pod(key) => key.to_string(),
        };
        return Err(NoRecord(name).into());
    }
    output::print(&match form {
        Form::Json => output::pretty(&explained)?,
        Form::Table => table(&explained, output::Columns::Usual),
        Form::Wide => table(&explained, output::Columns::All),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// The settings that the chart gives to agents and controller. `None`: there are none to be read, as on a
/// standalone node or without the right; several installations would have to be told apart.
async fn published(cluster: &Cluster) -> Result<Option<Conf>, ConfError> {
    let maps: Api<ConfigMap> = Api::all(cluster.client().clone());
    let named = ListParams::default().fields(&format!("metadata.name={CONF}"));
    let listed = maps.list(&named).await.map(|listed| listed.items);
    let listed = listed.unwrap_or_default();
    let [map] = listed.as_slice() else {
        return Ok(None);
    };
    let text = map.data.as_ref().and_then(|data| data.get("conf.yml"));
    let path = Path::new(CONF).join("conf.yml");
    text.map(|text| Conf::parse(text, &path)).transpose()
}

fn table(explained: &[Explained], columns: output::Columns) -> String {
    let mut header = vec!["ADDRESS", "POOL", "POD", "NIC", "VERDICT", "WHY", "HOW"];
    let all = columns == output::Columns::All;
    if all {
        header.extend(["UID", "SEEN", "IDENTITY", "ENDPOINT"]);
    }
    let dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    let rows = explained.iter().map(|one| {
        let mut cells = vec![
            one.address.to_string(),
            one.pool.clone(),
            one.pod.clone(),
            dash(&one.nic),
            one.verdict.to_owned(),
            one.why.clone(),
            dash(&one.how),
        ];
        if all {
            let seen = one.seen.as_ref().map(|seen| {
                let ips = if seen.has_ips { "with" } else { "without" };
                format!("{} {} {ips} addresses", seen.uid, seen.phase)
            });
            let endpoint = match (&one.endpoint_uid, one.endpoint_goes) {
                (None, _) => "-".to_owned(),
                (Some(uid), true) => format!("{uid}, goes"),
                (Some(uid), false) => format!("{uid}, stays"),
            };
            cells.extend([
                one.pod_uid.clone(),
                dash(&seen),
                dash(&one.identity),
                endpoint,
            ]);
        }
        cells
    });
    output::grid(&header, rows)
}
