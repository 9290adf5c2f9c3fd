//! The contract over TLS: verified, renewed, refused.

use std::sync::Arc;
use std::time::Duration;

use provider_sim::contract;
use provider_sim::tls::Tls;
use spiderpool_iaas::client::{Client, Endpoint};
use spiderpool_iaas::provider::Provider;
use tokio::net::TcpListener;

use crate::rig::{chain, item, request, rig};

#[tokio::test]
async fn the_certificate_is_verified_by_the_ca_of_now() {
    let rig = rig().await;
    let dir = tempfile::tempdir().unwrap();
    let (ca, other) = (dir.path().join("ca.crt"), dir.path().join("other.crt"));
    let name = "iaas-network-provider.iaas-network-provider-system.svc";
    let tls = Arc::new(Tls::new(vec![name.to_owned()], ca.clone()).unwrap());
    Tls::new(vec![name.to_owned()], other.clone()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let router = contract::router(Arc::clone(&rig.service));
    let server = tokio::spawn(Arc::clone(&tls).serve(listener, router));
    let endpoint = || Endpoint::parse(&url).unwrap();
    let call = async |endpoint: Endpoint| {
        let client = Client::new(endpoint, Duration::from_secs(5)).unwrap();
        let wanted = request("n1", &[item("n1", "10.72.0.10", "g")]);
        client
            .allocate(&wanted, None)
            .await
            .map_err(|error| chain(&error))
    };
    let named = || endpoint().with_server_name(name);
    assert!(call(named().with_ca_file(&ca)).await.is_ok());
    assert!(
        call(named()).await.is_ok(),
        "without a CA file nothing is verified"
    );
    for refused in [named().with_ca_file(&other), endpoint().with_ca_file(&ca)] {
        let text = call(refused).await.unwrap_err();
        assert!(
            text.starts_with("iaas allocate API call failed: cannot set up TLS"),
            "{text}"
        );
    }
    // one client over a renewal: its file has the new CA by the next connection
    let client = Client::new(named().with_ca_file(&ca), Duration::from_secs(5)).unwrap();
    let wanted = request("n1", &[item("n1", "10.72.0.10", "g")]);
    assert!(client.allocate(&wanted, None).await.is_ok());
    tls.rotate().unwrap();
    assert!(client.allocate(&wanted, None).await.is_ok());
    std::fs::remove_file(&ca).unwrap();
    let text = chain(&client.allocate(&wanted, None).await.unwrap_err());
    assert!(
        text.starts_with("iaas allocate API call failed: cannot read CA file"),
        "{text}"
    );
    // a pipe that nobody writes to, in the file's place
    nix::unistd::mkfifo(&ca, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let text = chain(&client.allocate(&wanted, None).await.unwrap_err());
    assert!(text.contains("it is not a regular file"), "{text}");
    server.abort();
}
