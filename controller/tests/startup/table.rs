//! What a process says of its provider's settings when it starts, and how it ends: spec iaas 2.4 and
//! 2.5, scenarios 1 to 3. Agent and controller answer alike.

use std::path::Path;
use std::process::{Command, Output};

const INVALID: &str = "IaaS provider configuration validation failed: invalid iaasNetworkProvider.";
const CREATED: &str = "IaaS client created successfully";

/// Runs the process with this configuration file until it ends; there is no API for it.
pub(crate) type Run<'a> = &'a dyn Fn(&Path) -> Command;

fn started(run: Run<'_>, section: &str) -> (Output, String) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("conf.yml");
    let section = section.replace("DIR", dir.path().to_str().unwrap());
    std::fs::write(dir.path().join("empty"), "").unwrap();
    std::fs::write(&path, format!("iaasNetworkProvider: {section}\n")).unwrap();
    let output = run(&path).output().unwrap();
    // The log is on stdout; why a start has failed, on stderr once more.
    let both = [output.stdout.as_slice(), &output.stderr].concat();
    let log = String::from_utf8_lossy(&both).into_owned();
    (output, log.replace(dir.path().to_str().unwrap(), "DIR"))
}

/// A setting that keeps the process from starting, and what follows [`INVALID`].
#[rustfmt::skip] // a case a line
const FATAL: &[(&str, &str)] = &[
    ("{service: {name: p, namespace: n}, httpRequestTimeout: abc}", r#"httpRequestTimeout "abc": time: invalid duration "abc""#),
    ("{service: {name: p, namespace: n}, httpRequestTimeout: 0s}", r#"httpRequestTimeout "0s": timeout must be positive"#),
    ("{service: {name: p, namespace: n}, httpRequestTimeout: -30s}", r#"httpRequestTimeout "-30s": timeout must be positive"#),
    ("{service: {name: p, namespace: n}, httpRequestTimeout: 2m}", r#"httpRequestTimeout "2m": timeout 2m0s must be less than static limit 2m0s"#),
    ("{service: {name: p, namespace: n}, httpRequestTimeout: 100s}", r#"httpRequestTimeout "100s": timeout 1m40s must be less than CNI client timeout 1m40s"#),
    ("{service: {name: P, namespace: n}}", r#"service.name "P": not a DNS-1123 label"#),
    ("{service: {name: p}}", r#"service.namespace "": not a DNS-1123 label"#),
    ("{service: {name: p, namespace: n, port: 0}}", "service.port 0: must be in 1-65535"),
    ("{service: {name: p, namespace: n}, tls: {caFile: DIR/none}}", r#"tls.caFile "DIR/none": No such file or directory (os error 2)"#),
    ("{service: {name: p, namespace: n}, tls: {caFile: DIR/empty}}", r#"tls.caFile "DIR/empty": it holds no certificate"#),
    ("{serverUrl: 'ftp://p'}", r#"serverUrl "ftp://p": the scheme is neither http nor https"#),
    ("{serverUrl: 'http://p', httpRequestTimeout: 0s}", r#"httpRequestTimeout "0s": timeout must be positive"#),
    ("{serverUrl: 'http://p', service: {name: p, namespace: n}}", r#"serverUrl "http://p": iaasNetworkProvider.service.name is set too; remove one of them"#),
    ("{enabled: true}", "enabled true: neither iaasNetworkProvider.service.name nor iaasNetworkProvider.serverUrl is set"),
];

/// Each of them ends the process with its line, before it has looked for the API.
pub(crate) fn mistakes_are_fatal(run: Run<'_>) {
    for (section, text) in FATAL {
        let (output, log) = started(run, section);
        assert!(!output.status.success(), "{section}\n{log}");
        let line = format!("{INVALID}{text}");
        assert!(
            log.lines().any(|found| found.ends_with(&line)),
            "{line}\n{log}"
        );
        assert!(
            !log.contains(CREATED) && !log.contains("kubeconfig"),
            "{section}\n{log}"
        );
    }
    let (output, log) = started(run, "{url: 'ftp://p'}");
    assert!(!output.status.success());
    let line = "Failed to create IaaS client: provider URL \"ftp://p\" is not like https://host:port: the scheme is neither http nor https";
    assert!(log.lines().any(|found| found.ends_with(line)), "{log}");
}

/// The client is made, and told of once; what is off says nothing.
pub(crate) fn a_client_is_told_of(run: Run<'_>) {
    for (section, times) in [
        ("{service: {name: p, namespace: n}}", 1),
        (
            "{service: {name: p, namespace: n}, httpRequestTimeout: 99s}",
            1,
        ),
        (
            "{serverUrl: 'http://p.n.svc:80', httpRequestTimeout: 500ms}",
            1,
        ),
        ("{httpRequestTimeout: abc}", 0),
        ("{enabled: false, service: {name: p, namespace: n}}", 0),
    ] {
        let (_, log) = started(run, section);
        assert_eq!(log.matches(CREATED).count(), times, "{section}\n{log}");
        assert_eq!(log.contains("IaaS"), times == 1, "{section}\n{log}");
        // It went on to the API, which is not there.
        assert!(log.contains("kubeconfig"), "{section}\n{log}");
    }
}
