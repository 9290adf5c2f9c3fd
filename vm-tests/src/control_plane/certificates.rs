//! Keys, certificates, token and kubeconfig of one control plane, made anew for each. Elliptic
//! curves: the server's own RSA keys would cost a second at each start.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};
use serde_json::json;

/// File name of the kubeconfig.
pub const KUBECONFIG: &str = "kubeconfig";
pub(super) const SERVER_CERTIFICATE: &str = "server.crt";
pub(super) const SERVER_KEY: &str = "server.key";
pub(super) const SERVICE_ACCOUNT_KEY: &str = "service-account.key";
pub(super) const SERVICE_ACCOUNT_PUBLIC_KEY: &str = "service-account.pub";
pub(super) const TOKENS: &str = "tokens.csv";

/// Names the server is called by, on loopback and by what runs inside a cluster.
const NAMES: [&str; 5] = [
    "127.0.0.1",
    "localhost",
    "10.96.0.1",
    "kubernetes.default",
    "kubernetes.default.svc",
];

/// URL of the API server.
pub(super) fn server(port: u16) -> String {
    format!("https://127.0.0.1:{port}")
}

/// Writes all of them below `dir`; secrets with mode 0600.
pub(super) fn write(dir: &Path, port: u16) -> Result<()> {
    let mut params = CertificateParams::default();
    let name = &mut params.distinguished_name;
    name.push(DnType::CommonName, "spiderpool-lab-ca");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)
        .context("make a certificate authority")?;

    let mut params = CertificateParams::new(NAMES.map(str::to_owned))?;
    let name = &mut params.distinguished_name;
    name.push(DnType::CommonName, "kube-apiserver");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate()?;
    let certificate = params
        .signed_by(&key, &authority)
        .context("make the server's certificate")?;

    let token = token()?;
    secret(&dir.join(SERVER_CERTIFICATE), &certificate.pem())?;
    secret(&dir.join(SERVER_KEY), &key.serialize_pem())?;
    let accounts = KeyPair::generate()?;
    secret(&dir.join(SERVICE_ACCOUNT_KEY), &accounts.serialize_pem())?;
    secret(
        &dir.join(SERVICE_ACCOUNT_PUBLIC_KEY),
        &accounts.public_key_pem(),
    )?;
    secret(
        &dir.join(TOKENS),
        &format!("{token},lab-admin,lab-admin,\"system:masters\"\n"),
    )?;
    let config = kubeconfig(&server(port), &authority.pem(), &token);
    secret(&dir.join(KUBECONFIG), &config)
}

/// JSON is YAML.
fn kubeconfig(server: &str, authority_pem: &str, token: &str) -> String {
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "lab",
        "clusters": [{"name": "lab", "cluster": {"server": server,
            "certificate-authority-data": STANDARD.encode(authority_pem)}}],
        "users": [{"name": "lab", "user": {"token": token}}],
        "contexts": [{"name": "lab",
            "context": {"cluster": "lab", "user": "lab", "namespace": "default"}}],
    });
    format!("{config:#}\n")
}

/// 128 random bits.
fn token() -> Result<String> {
    let mut random = [0; 16];
    File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut random))
        .context("read /dev/urandom")?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn secret(path: &Path, text: &str) -> Result<()> {
    let written = || {
        match fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = File::options();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        file.write_all(text.as_bytes())
    };
    written().with_context(|| format!("write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::lab::api_client::ApiClient;

    #[test]
    fn the_kubeconfig_is_private_and_our_client_reads_it() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), 6443).unwrap();
        write(dir.path(), 6444).unwrap();
        let path = dir.path().join(KUBECONFIG);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        ApiClient::here(&path).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains("https://127.0.0.1:6444"), "{text}");
    }
}
