//! `conf.yml`: what it says of the provider, and the client made of it (spec iaas 2.2-2.5). Reads that
//! file and the CA file it names, at start; what is wrong in them keeps the agent from starting.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use spiderpool_iaas::client::{Client, ClientError, Endpoint};
use spiderpool_iaas::config::{ConfigError, Section};
use spiderpool_iaas::provider::Provider;

use crate::flow::error::full;
use crate::regular_file;

/// Longest `conf.yml` and CA bundle, bytes.
const MAX_FILE: u64 = 1 << 20;

/// The keys this agent reads; others are ignored.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ConfFile {
    iaas_network_provider: Option<Section>,
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
    /// A value of the provider's section.
    #[error("IaaS provider configuration validation failed")]
    Provider(#[from] ConfigError),
    /// No client can be made of it.
    #[error("Failed to create IaaS client")]
    Client(#[from] ClientError),
}

/// The provider that the file configures; `None`: there is no such file, or it names none. Blocks
/// on the disk, and says in the log what came of it.
///
/// # Errors
/// [`ConfError`] names file and value.
pub fn provider(path: &Path) -> Result<Option<Arc<dyn Provider>>, ConfError> {
    match client(path) {
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

fn client(path: &Path) -> Result<Option<Client>, ConfError> {
    let read = regular_file::read(path, MAX_FILE)
        .and_then(|text| String::from_utf8(text).map_err(io::Error::other));
    let text = match read {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => {
            let path = path.to_owned();
            return Err(ConfError::File { path, source });
        }
    };
    let file: Option<ConfFile> =
        serde_saphyr::from_str(&text).map_err(|error| ConfError::Yaml {
            path: path.to_owned(),
            reason: error.to_string(),
        })?;
    let section = file.unwrap_or_default().iaas_network_provider;
    let config = section
        .unwrap_or_default()
        .validate(|ca| regular_file::read(ca, MAX_FILE));
    let Some(config) = config? else {
        return Ok(None);
    };
    let endpoint = Endpoint::of_config(&config)?;
    Ok(Some(Client::new(endpoint, config.timeout)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(text: &str) -> Result<bool, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("conf.yml");
        std::fs::write(&path, text).unwrap();
        let made = provider(&path).map_err(|error| full(&error));
        made.map(|provider| provider.is_some())
    }

    #[test]
    fn a_file_may_be_missing_empty_or_about_other_things() {
        let dir = tempfile::tempdir().unwrap();
        assert!(provider(&dir.path().join("none")).unwrap().is_none());
        for text in [
            "",
            "enableIPv4: true\n",
            "iaasNetworkProvider:\n",
            "iaasNetworkProvider: {httpRequestTimeout: abc}",
        ] {
            assert_eq!(judged(text), Ok(false), "{text:?}");
        }
    }

    #[test]
    fn a_service_or_a_url_switches_the_provider_on() {
        for section in [
            "{service: {name: p, namespace: n}}",
            "{url: 'http://127.0.0.1:8080', httpRequestTimeout: 3s}",
        ] {
            assert_eq!(judged(&format!("iaasNetworkProvider: {section}")), Ok(true));
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
            let error = provider(path).err().unwrap();
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
        let yaml = judged("iaasNetworkProvider: [").unwrap_err();
        assert!(yaml.contains("conf.yml is not the YAML"), "{yaml}");
    }
}
