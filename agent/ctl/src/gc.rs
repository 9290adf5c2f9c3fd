//! `spiderpoolctl gc explain`: what garbage collection would do with the records of a Pod or an
//! address, and why. Asks the API as the collector does, and decides with the same function.

use std::error::Error;
use std::net::IpAddr;
use std::process::ExitCode;

use clap::Subcommand;
use spiderpool_controller::gc::explain::{Explained, Subject, explain};
use spiderpool_controller::objects::ObjectKey;
use spiderpool_ipam::gc::Knobs;
use spiderpool_ipam::sticky::Switches;

use crate::cluster::Cluster;
use crate::{Form, output, pod};

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

The switches are the controller's defaults; set its SPIDERPOOL_GC_* variables to
ask with others.

Exit codes:
  0  told
  1  failed, or there is no such record")]
    Explain {
        /// An address, or a Pod; without a namespace in default
        #[arg(value_name = "IP|[NAMESPACE/]POD", value_parser = subject)]
        subject: Subject,
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
        output: form,
    } = verb;
    let knobs = Knobs::read(|name| std::env::var(name).ok())?;
    let explained = explain(cluster.client(), Switches::ON, &knobs, subject).await?;
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
