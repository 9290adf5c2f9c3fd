//! Serves the API over TLS until Ctrl-C: `cargo run --example serve -- FOLDER [ADDRESS]`, then
//! `kubectl --kubeconfig FOLDER/kubeconfig get spiderippools`.

use std::path::PathBuf;
use std::sync::Arc;

use spiderpool_embedded_api::{EmbeddedApi, IpamAdmission, TlsOptions, write_kubeconfig};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt()
        .with_env_filter("debug,hyper=info")
        .with_writer(std::io::stderr)
        .init();
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().ok_or("usage: serve FOLDER [ADDRESS]")?);
    let listen = arguments
        .next()
        .unwrap_or_else(|| "127.0.0.1:16443".to_owned())
        .parse()?;
    let api = EmbeddedApi::open(
        &folder.join("state.redb"),
        Arc::new(IpamAdmission::default()),
    )?;
    let options = TlsOptions {
        listen,
        cert_dir: folder.join("pki"),
        token_path: folder.join("token"),
        names: Vec::new(),
    };
    let listening = api.serve(&options).await?;
    let server = format!("https://{}", listening.address);
    write_kubeconfig(
        &folder.join("kubeconfig"),
        &server,
        &listening.ca_pem,
        &listening.token,
    )?;
    tracing::info!(%server, "serving");
    tokio::signal::ctrl_c().await?;
    api.close().await;
    Ok(())
}
