use super::*;
use clap::CommandFactory;

fn read(rows: &[(&str, &str)]) -> Result<Env, String> {
    let own = [
        ("SPIDERPOOL_POD_NAME", "c-0"),
        ("SPIDERPOOL_POD_NAMESPACE", "spiderpool"),
    ];
    let env = Env::read(|name| {
        let mut rows = rows.iter().chain(&own);
        let row = rows.find(|(known, _)| *known == name);
        row.map(|(_, value)| (*value).to_owned())
    });
    env.map_err(|error| error.to_string())
}

#[test]
fn unset_and_empty_variables_have_their_defaults() {
    assert_eq!(read(&[]), Ok(Env::new("c-0", "spiderpool")));
    let empty = read(&[("SPIDERPOOL_HEALTH_PORT", ""), ("CNI_CONFIG_DIR", "")]);
    assert_eq!(empty, Ok(Env::new("c-0", "spiderpool")));
}

/// Each differs from its default.
const ALL: &[(&str, &str)] = &[
    ("SPIDERPOOL_LOG_LEVEL", "debug"),
    ("SPIDERPOOL_HEALTH_PORT", "1"),
    ("SPIDERPOOL_METRIC_HTTP_PORT", "2"),
    ("SPIDERPOOL_WEBHOOK_PORT", "3"),
    ("SPIDERPOOL_ENABLED_METRIC", "true"),
    ("SPIDERPOOL_ENABLED_DEBUG_METRIC", "t"),
    ("SPIDERPOOL_METRIC_RENEW_PERIOD", "4"),
    ("SPIDERPOOL_GC_DEFAULT_INTERVAL_DURATION", "60"),
    ("SPIDERPOOL_LEADER_DURATION", "30"),
    ("SPIDERPOOL_LEADER_RENEW_DEADLINE", "20"),
    ("SPIDERPOOL_LEADER_RETRY_PERIOD", "5"),
    ("SPIDERPOOL_LEADER_RETRY_GAP", "6"),
    ("SPIDERPOOL_IPPOOL_INFORMER_RESYNC_PERIOD", "7"),
    ("SPIDERPOOL_SUBNET_INFORMER_RESYNC_PERIOD", "10"),
    ("SPIDERPOOL_GOPS_LISTEN_PORT", "11"),
    ("SPIDERPOOL_COORDINATOR_ENABLED", "1"),
    ("SPIDERPOOL_COORDINATOR_INFORMER_RESYNC_PERIOD", "8"),
    ("SPIDERPOOL_COORDINATOR_DEAFULT_NAME", "main"),
    ("SPIDERPOOL_MULTUS_CONFIG_ENABLED", "true"),
    ("SPIDERPOOL_MULTUS_CONFIG_INFORMER_RESYNC_PERIOD", "9"),
    ("CNI_CONFIG_DIR", "/cni"),
    ("CILIUM_CONFIGMAP_NAMESPACE_NAME", "cilium/config"),
];

#[test]
fn every_variable_is_read_by_its_name() {
    let seconds = Duration::from_secs;
    let on = |resync| Switched {
        enabled: true,
        resync: seconds(resync),
    };
    let want = Env {
        log_level: "debug".into(),
        health_port: 1,
        metrics_port: 2,
        webhook_port: 3,
        metrics: true,
        debug_metrics: true,
        metrics_period: seconds(4),
        gc: Knobs {
            interval: SignedDuration::from_secs(60),
            ..Knobs::default()
        },
        leader: LeaderTimes {
            duration: seconds(30),
            renew_deadline: seconds(20),
            retry_period: seconds(5),
            retry_gap: seconds(6),
        },
        pool_resync: seconds(7),
        subnet_resync: seconds(10),
        effectless: vec!["SPIDERPOOL_GOPS_LISTEN_PORT".to_owned()],
        coordinator: on(8),
        coordinator_name: "main".into(),
        multus_config: on(9),
        cni_config_dir: "/cni".into(),
        cilium_config: "cilium/config".into(),
        ..Env::new("c-0", "spiderpool")
    };
    assert_eq!(read(ALL), Ok(want));
}

#[test]
fn what_cannot_be_is_refused_with_name_and_value() {
    let variable = |text: &str| Err(format!("environment variable SPIDERPOOL_{text}"));
    for (row, want) in [
        (
            ("SPIDERPOOL_HEALTH_PORT", "70000"),
            variable("HEALTH_PORT=\"70000\" is not a number"),
        ),
        (
            ("SPIDERPOOL_ENABLED_METRIC", "maybe"),
            variable("ENABLED_METRIC=\"maybe\" is not true or false"),
        ),
        (
            ("SPIDERPOOL_LEADER_DURATION", "15s"),
            variable("LEADER_DURATION=\"15s\" is not a number of seconds"),
        ),
        (
            ("SPIDERPOOL_GC_IP_WORKER_NUM", "-1"),
            variable("GC_IP_WORKER_NUM=\"-1\" is not a number"),
        ),
        (
            ("SPIDERPOOL_POD_NAME", ""),
            variable("POD_NAME is not set: it must be the name of this Pod"),
        ),
        (
            ("SPIDERPOOL_LEADER_DURATION", "10"),
            Err(EnvError::LeaderTimes.to_string()),
        ),
        (
            ("SPIDERPOOL_LEADER_RETRY_PERIOD", "0"),
            Err(EnvError::LeaderTimes.to_string()),
        ),
    ] {
        assert_eq!(read(&[row]), want, "{row:?}");
    }
}

#[test]
fn the_command_line_is_sound_and_provided_files_must_exist() {
    Cli::command().debug_assert();
    let parse = |line: &str| {
        let cli = Cli::try_parse_from(line.split(' ')).ok()?;
        let Command::Daemon(args) = cli.command;
        Some(args)
    };
    assert_eq!(parse("c daemon").unwrap().tls_files().unwrap(), None);
    assert!(parse("c daemon --tls-server-cert /a").is_none());
    let dir = tempfile::tempdir().unwrap();
    let cert = dir.path().join("tls.crt");
    std::fs::write(&cert, "").unwrap();
    let cert = cert.display();
    let error = parse(&format!(
        "c daemon --tls-server-cert {cert} --tls-server-key /no/key"
    ));
    let error = error.unwrap().tls_files().unwrap_err().to_string();
    assert_eq!(error, "cannot use /no/key of --tls-server-key");
    let both = parse(&format!(
        "c daemon --tls-server-cert {cert} --tls-server-key {cert}"
    ));
    assert!(both.unwrap().tls_files().unwrap().is_some());
}
