//! The TCP side: TLS, the token, a kubeconfig that works.

use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use spiderpool_embedded_api::{TlsOptions, write_kubeconfig};

use crate::rig::{Rig, rig};

#[tokio::test(flavor = "multi_thread")]
async fn the_listener_wants_tls_and_the_token() {
    let Rig { api, folder, .. } = rig();
    let options = TlsOptions {
        listen: "127.0.0.1:0".parse().unwrap(),
        cert_dir: folder.path().join("pki"),
        token_path: folder.path().join("token"),
        names: vec!["node-a".to_owned()],
    };
    let listening = api.serve(&options).await.unwrap();
    // somebody who connects and says nothing holds nobody up
    let _silent = tokio::net::TcpStream::connect(listening.address)
        .await
        .unwrap();
    let path = folder.path().join("kubeconfig");
    let server = format!("https://{}", listening.address);
    write_kubeconfig(&path, &server, &listening.ca_pem, &listening.token).unwrap();
    let client = |config: Kubeconfig| async {
        let options = KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(config, &options).await;
        kube::Client::try_from(config.unwrap()).unwrap()
    };
    let config = Kubeconfig::read_from(&path).unwrap();
    let version = client(config.clone())
        .await
        .apiserver_version()
        .await
        .unwrap();
    assert_eq!(version.major, "1");
    let mut other = config;
    other.auth_infos[0].auth_info.as_mut().unwrap().token = Some("wrong".to_owned().into());
    match client(other).await.apiserver_version().await {
        Err(kube::Error::Api(status)) => assert_eq!(status.code, 401),
        other => panic!("{other:?}"),
    }
    let taken = TlsOptions {
        listen: listening.address,
        ..options
    };
    let error = api.serve(&taken).await.err().unwrap();
    assert!(
        error.to_string().contains(&listening.address.to_string()),
        "{error}"
    );
    tokio::time::timeout(Duration::from_secs(10), api.close())
        .await
        .expect("closes in time");
}
