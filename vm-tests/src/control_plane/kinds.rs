//! Our kinds in a real API server: the chart's definitions, created and waited for.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::lab::api_client::ApiClient;
use crate::lab::wait;

/// The chart's files, as `cargo xtask crds` makes them.
const FILES: [&str; 7] = [
    include_str!("../../../charts/spiderpool/crds/spiderpool.spidernet.io_spiderendpoints.yaml"),
    include_str!("../../../charts/spiderpool/crds/spiderpool.spidernet.io_spiderippools.yaml"),
    include_str!(
        "../../../charts/spiderpool/crds/k8s.cni.cncf.io_network-attachment-definitions.yaml"
    ),
    include_str!("../../../charts/spiderpool/crds/spiderpool.spidernet.io_spidercoordinators.yaml"),
    include_str!(
        "../../../charts/spiderpool/crds/spiderpool.spidernet.io_spidermultusconfigs.yaml"
    ),
    include_str!("../../../charts/spiderpool/crds/spiderpool.spidernet.io_spiderreservedips.yaml"),
    include_str!("../../../charts/spiderpool/crds/spiderpool.spidernet.io_spidersubnets.yaml"),
];
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const LIMIT: Duration = Duration::from_secs(60);

/// Creates the definitions and waits until their objects are served.
pub(super) fn install(api: &ApiClient, wanted: &dyn Fn() -> Result<()>) -> Result<()> {
    for file in FILES {
        let definition: Value =
            serde_saphyr::from_str(file).context("parse a CustomResourceDefinition")?;
        api.create(DEFINITIONS, &definition)
            .context("install our kinds")?;
    }
    served(api, wanted)
}

/// Waits until all our kinds can be listed, and until the namespace of most tests is there.
pub(super) fn served(api: &ApiClient, wanted: &dyn Fn() -> Result<()>) -> Result<()> {
    let mut paths = vec!["/api/v1/namespaces/default".to_owned()];
    for file in FILES {
        let definition: Value = serde_saphyr::from_str(file)?;
        paths.push(collection(&definition)?);
    }
    for path in paths {
        wait::until(LIMIT, &format!("an answer to GET {path}"), || {
            wanted()?;
            let answer = api.request("GET", &path, "application/json", &Value::Null)?;
            match answer.status {
                200 => Ok(Some(())),
                // Not served yet, or its storage is being prepared.
                404 | 429 | 503 => Ok(None),
                other => bail!("GET {path}: status {other}"),
            }
        })?;
    }
    Ok(())
}

/// Path of the objects of a definition, in all namespaces.
fn collection(definition: &Value) -> Result<String> {
    let text = |pointer: &str| {
        let found = definition.pointer(pointer).and_then(Value::as_str);
        found.with_context(|| format!("a definition without {pointer}"))
    };
    let (group, plural) = (text("/spec/group")?, text("/spec/names/plural")?);
    let version = text("/spec/versions/0/name")?;
    Ok(format!("/apis/{group}/{version}/{plural}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::api_client::{ENDPOINTS, POOLS};

    #[test]
    fn the_charts_files_name_our_collections() {
        let mut found: Vec<_> = FILES
            .iter()
            .map(|file| collection(&serde_saphyr::from_str(file).unwrap()).unwrap())
            .collect();
        found.truncate(2);
        assert_eq!(found, [ENDPOINTS, POOLS]);
    }
}
