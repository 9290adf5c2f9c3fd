//! The plugin's log: JSON lines with the fields operators search for (spec dataplane 1.1). Owns
//! levels, keys and the line's shape. Nothing in here fails a call.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use spiderpool_api::cni::CniCommand;
use spiderpool_api::cni_conf::{CniArgs, ConfError, Fields, Plugin};

use crate::answer::Answer;
use crate::env::Environment;
use crate::rotate::{self, Limits};

/// Default size limit, MB.
const MAX_SIZE_MB: u32 = 100;
/// Default age limit, days.
const MAX_AGE_DAYS: u32 = 30;
/// Default number of old files.
const MAX_COUNT: u32 = 10;

/// Weight of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum Level {
    /// Steps of a call.
    Debug,
    /// One line a call.
    Info,
    /// Served, but not as usual.
    Warn,
    /// Failed.
    Error,
    /// Nothing of ours: silences the log.
    Fatal,
}

impl Level {
    fn parse(text: &str) -> Option<Self> {
        Some(match text.to_ascii_lowercase().as_str() {
            "debug" => Self::Debug,
            "info" => Self::Info,
            "warn" => Self::Warn,
            "error" => Self::Error,
            "fatal" | "panic" => Self::Fatal,
            _ => return None,
        })
    }
}

/// Where and what to log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LogConf {
    level: Level,
    path: PathBuf,
    limits: Limits,
}

/// Names of the five keys in one place of a configuration.
struct Keys {
    level: &'static str,
    path: &'static str,
    size: &'static str,
    age: &'static str,
    count: &'static str,
}

const IPAM_KEYS: Keys = Keys {
    level: "log_level",
    path: "log_file_path",
    size: "log_file_max_size",
    age: "log_file_max_age",
    count: "log_file_max_count",
};

const OPTION_KEYS: Keys = Keys {
    level: "logLevel",
    path: "logFile",
    size: "logMaxSize",
    age: "logMaxAge",
    count: "logMaxCount",
};

impl LogConf {
    /// What applies without any key.
    pub(crate) fn default_of(plugin: Plugin) -> Self {
        Self {
            level: Level::Info,
            path: format!("/var/log/spidernet/{}.log", plugin.name()).into(),
            limits: Limits::new(MAX_SIZE_MB, MAX_AGE_DAYS, MAX_COUNT),
        }
    }

    /// The keys of the `ipam` object.
    pub(crate) fn of_ipam(ipam: &Fields<'_>) -> Result<Self, ConfError> {
        Self::read(Plugin::Spiderpool, ipam, &IPAM_KEYS)
    }

    /// The keys of the `logOptions` object.
    pub(crate) fn of_options(plugin: Plugin, options: &Fields<'_>) -> Result<Self, ConfError> {
        Self::read(plugin, options, &OPTION_KEYS)
    }

    fn read(plugin: Plugin, fields: &Fields<'_>, keys: &Keys) -> Result<Self, ConfError> {
        let mut conf = Self::default_of(plugin);
        if let Some(text) = fields.text(keys.level)?.filter(|text| !text.is_empty()) {
            conf.level = Level::parse(text).ok_or_else(|| {
                let reason = format!("{text:?} is none of debug, info, warn, error, fatal, panic");
                fields.value(keys.level, &reason)
            })?;
        }
        if let Some(path) = fields.text(keys.path)?.filter(|path| !path.is_empty()) {
            conf.path = path.into();
        }
        let limit = |key, default| match fields.number(key)? {
            None => Ok(default),
            Some(number) => u32::try_from(number)
                .map_err(|_| fields.value(key, &format!("{number} is not in 0-{}", u32::MAX))),
        };
        let size = match limit(keys.size, MAX_SIZE_MB)? {
            0 => MAX_SIZE_MB,
            size => size,
        };
        let age = limit(keys.age, MAX_AGE_DAYS)?;
        conf.limits = Limits::new(size, age, limit(keys.count, MAX_COUNT)?);
        Ok(conf)
    }
}

/// One line; the order is the order in the file.
#[derive(Serialize)]
struct Line<'a> {
    level: Level,
    ts: &'a str,
    logger: &'static str,
    caller: &'a str,
    msg: &'a str,
    #[serde(flatten)]
    fields: &'a CallFields,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<&'a str>,
    #[serde(rename = "durationMs", skip_serializing_if = "Option::is_none")]
    duration_ms: Option<u64>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct CallFields {
    action: CniCommand,
    #[serde(rename = "ContainerID")]
    container_id: String,
    netns: String,
    if_name: String,
    pod_name: String,
    pod_namespace: String,
    #[serde(rename = "PodUID")]
    pod_uid: String,
}

/// The log of one call.
#[derive(Debug)]
pub(crate) struct Log {
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    conf: LogConf,
    logger: &'static str,
    fields: CallFields,
}

impl Log {
    /// For calls that must not touch a file, or don't know which.
    pub(crate) const fn silent() -> Self {
        Self { open: None }
    }

    /// The log of a call, with its fields. Opens no file yet.
    pub(crate) fn open(
        plugin: Plugin,
        command: CniCommand,
        environment: &Environment,
        conf: LogConf,
    ) -> Self {
        let args = CniArgs::parse(&environment.text("CNI_ARGS"));
        let fields = CallFields {
            action: command,
            container_id: environment.text("CNI_CONTAINERID"),
            netns: environment.text("CNI_NETNS"),
            if_name: environment.text("CNI_IFNAME"),
            pod_name: args.pod_name.unwrap_or_default(),
            pod_namespace: args.pod_namespace.unwrap_or_default(),
            pod_uid: args.pod_uid.unwrap_or_default(),
        };
        let logger = plugin.name();
        Self {
            open: Some(Open {
                conf,
                logger,
                fields,
            }),
        }
    }

    /// A step.
    #[track_caller]
    pub(crate) fn debug(&self, msg: &str) {
        self.write(Level::Debug, msg);
    }

    /// A line without figures.
    #[track_caller]
    pub(crate) fn write(&self, level: Level, msg: &str) {
        self.append(level, msg, None, None);
    }

    /// The one line of a call.
    #[track_caller]
    pub(crate) fn call_ended(
        &self,
        answer: &Answer,
        unprinted: Option<&io::Error>,
        duration: Duration,
    ) {
        if let Some(error) = unprinted {
            let msg = format!("the answer could not be printed: {error}");
            return self.append(Level::Error, &msg, Some(answer), Some(duration));
        }
        match answer.error() {
            None => self.append(Level::Info, "done", Some(answer), Some(duration)),
            Some(error) => self.append(Level::Error, &error.msg, Some(answer), Some(duration)),
        }
    }

    /// A full disk or a missing folder is no reason to leave a Pod without network, so the
    /// outcome is dropped here.
    #[track_caller]
    fn append(&self, level: Level, msg: &str, answer: Option<&Answer>, duration: Option<Duration>) {
        let Some(open) = &self.open else { return };
        if level < open.conf.level {
            return;
        }
        let now = SystemTime::now();
        let error = answer.and_then(Answer::error);
        let line = Line {
            level,
            ts: &timestamp(now),
            logger: open.logger,
            caller: &caller(),
            msg,
            fields: &open.fields,
            code: error.map(|error| error.code),
            details: error
                .map(|error| error.details.as_str())
                .filter(|text| !text.is_empty()),
            duration_ms: duration.and_then(|time| u64::try_from(time.as_millis()).ok()),
        };
        if let Ok(mut text) = serde_json::to_vec(&line) {
            text.push(b'\n');
            rotate::append(&open.conf.path, &open.conf.limits, &text, now).ok();
        }
    }
}

/// `file.rs:line` of whoever wrote the line.
#[track_caller]
fn caller() -> String {
    let place = std::panic::Location::caller();
    let file = place.file().rsplit('/').next().unwrap_or_default();
    format!("cni/{file}:{}", place.line())
}

/// ISO 8601 in UTC with milliseconds.
pub(crate) fn timestamp(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let millis = since.subsec_millis();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// Year, month and day of a day counted from 1970-01-01, by 400-year eras that begin in March.
const fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    let year = year_of_era + era * 400 + (month <= 2) as u64;
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn times_are_iso_8601() {
        for (seconds, want) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399, "2000-02-28T23:59:59.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (1_735_689_599, "2024-12-31T23:59:59.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(timestamp(UNIX_EPOCH + Duration::from_secs(seconds)), want);
        }
    }

    #[test]
    fn keys_and_their_limits() {
        let read = |value: serde_json::Value| {
            LogConf::of_ipam(&Fields::new("ipam.", value.as_object().unwrap()))
        };
        let defaults = LogConf::default_of(Plugin::Spiderpool);
        assert_eq!(read(json!({})).unwrap(), defaults);
        assert_eq!(read(json!({"log_file_max_size": 0})).unwrap(), defaults);
        assert_eq!(
            defaults.path.to_str(),
            Some("/var/log/spidernet/spiderpool.log")
        );
        let conf = read(json!({"LOG_LEVEL": "WARN", "log_file_path": "/x.log",
            "log_file_max_size": "7", "log_file_max_age": 0, "log_file_max_count": 2}))
        .unwrap();
        assert_eq!(conf.level, Level::Warn);
        assert_eq!(conf.path.to_str(), Some("/x.log"));
        assert_eq!(conf.limits, Limits::new(7, 0, 2));
        for bad in [
            json!({"log_level": "loud"}),
            json!({"log_file_max_age": -1}),
            json!({"log_file_path": 7}),
        ] {
            assert!(read(bad.clone()).is_err(), "{bad}");
        }
        let options = json!({"logLevel": "debug", "logFile": "/e.log"});
        let fields = Fields::new("logOptions.", options.as_object().unwrap());
        let conf = LogConf::of_options(Plugin::EniVlan, &fields).unwrap();
        assert_eq!((conf.level, conf.path), (Level::Debug, "/e.log".into()));
    }
}
