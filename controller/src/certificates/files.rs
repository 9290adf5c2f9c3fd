//! A certificate that somebody else provides, cert-manager or an operator: two files, read again while
//! the process runs. What the API server trusts is then theirs to say as well.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::served::{Served, ServedError};
use crate::chain::full;
use crate::config::TlsFiles;
use crate::regular_file;

/// Between two looks. A volume of a Secret changes a minute after the Secret.
const INTERVAL: Duration = Duration::from_secs(5);
/// Longest file, bytes.
const MAX_FILE: u64 = 1 << 20;

/// The files cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// One cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// Where it is.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Their content.
    #[error("cannot serve {} with {}", cert.display(), key.display())]
    Content {
        /// The certificate.
        cert: PathBuf,
        /// The key.
        key: PathBuf,
        /// What is wrong.
        source: ServedError,
    },
}

/// Reads the files and serves what is in them; then again and again until `stop`. Files that cannot be
/// used after the first time are logged, and the certificate before stays: a pair is written one file
/// after the other.
///
/// # Errors
/// [`FilesError`] of the first time.
pub async fn follow(
    files: &TlsFiles,
    served: Arc<Served>,
    stop: CancellationToken,
) -> Result<(), FilesError> {
    load(files, &served).await?;
    let mut known = None;
    loop {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = tokio::time::sleep(INTERVAL) => {}
        }
        let failed = match load(files, &served).await {
            Ok(changed) => {
                if changed {
                    tracing::info!(cert = %files.cert.display(), "serving a new certificate");
                }
                None
            }
            Err(error) => Some(full(&error)),
        };
        if let Some(failed) = failed.as_ref().filter(|_| failed != known) {
            tracing::warn!("{failed}; the certificate before is served on");
        }
        known = failed;
    }
}

async fn load(files: &TlsFiles, served: &Arc<Served>) -> Result<bool, FilesError> {
    let files = files.clone();
    let served = Arc::clone(served);
    let loaded = tokio::task::spawn_blocking(move || {
        let read = |path: &PathBuf| {
            let text = regular_file::read(path, MAX_FILE)
                .and_then(|bytes| String::from_utf8(bytes).map_err(io::Error::other));
            text.map_err(|source| FilesError::Read {
                path: path.clone(),
                source,
            })
        };
        let (cert, key) = (read(&files.cert)?, read(&files.key)?);
        served
            .replace(&cert, &key)
            .map_err(|source| FilesError::Content {
                cert: files.cert,
                key: files.key,
                source,
            })
    });
    // A panic in there is one of the program.
    loaded.await.unwrap_or(Ok(false))
}
