//! Request paths: which kind, namespace, object and subresource they mean. Pure.

use crate::kinds::{self, Kind};

/// What a path under `/api` or `/apis` names.
#[derive(Debug, Clone)]
pub(crate) enum Target {
    /// `/api`.
    CoreVersions,
    /// `/apis`.
    Groups,
    /// `/apis/GROUP`.
    Group(String),
    /// `/api/v1`, `/apis/GROUP/VERSION`.
    Resources { group: String, version: String },
    /// Objects of a kind, in one namespace or all.
    Collection {
        kind: &'static Kind,
        namespace: Option<String>,
    },
    /// One object or its status.
    Object {
        kind: &'static Kind,
        namespace: String,
        name: String,
        status: bool,
    },
}

/// The target of a path; none if nothing is served there.
pub(crate) fn parse(path: &str) -> Option<Target> {
    let parts: Vec<_> = path.trim_matches('/').split('/').collect();
    match parts.as_slice() {
        ["api"] => Some(Target::CoreVersions),
        ["apis"] => Some(Target::Groups),
        ["apis", group] => Some(Target::Group((*group).to_owned())),
        ["api", version] => Some(resources("", version)),
        ["apis", group, version] => Some(resources(group, version)),
        ["api", version, rest @ ..] => resource("", version, rest),
        ["apis", group, version, rest @ ..] => resource(group, version, rest),
        _ => None,
    }
}

fn resources(group: &str, version: &str) -> Target {
    Target::Resources {
        group: group.to_owned(),
        version: version.to_owned(),
    }
}

fn resource(group: &str, version: &str, rest: &[&str]) -> Option<Target> {
    let find = |plural: &str| kinds::by_plural(group, version, plural);
    let object = |kind: &'static Kind, namespace: &str, name: &str, status: bool| {
        let fits = kind.namespaced != namespace.is_empty() && (!status || kind.status);
        fits.then(|| Target::Object {
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            status,
        })
    };
    match *rest {
        [plural] => Some(Target::Collection {
            kind: find(plural)?,
            namespace: None,
        }),
        // also how Namespace objects themselves are named
        ["namespaces", name, "status"] => object(find("namespaces")?, "", name, true),
        ["namespaces", namespace, plural] => {
            let kind = find(plural).filter(|kind| kind.namespaced)?;
            Some(Target::Collection {
                kind,
                namespace: Some(namespace.to_owned()),
            })
        }
        ["namespaces", namespace, plural, name] => object(find(plural)?, namespace, name, false),
        ["namespaces", namespace, plural, name, "status"] => {
            object(find(plural)?, namespace, name, true)
        }
        [plural, name] => object(find(plural)?, "", name, false),
        [plural, name, "status"] => object(find(plural)?, "", name, true),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn describe(path: &str) -> String {
        match parse(path) {
            Some(Target::Collection { kind, namespace }) => {
                format!("{} {} *", kind.kind, namespace.as_deref().unwrap_or("-"))
            }
            Some(Target::Object {
                kind,
                namespace,
                name,
                status,
            }) => {
                let namespace = if namespace.is_empty() {
                    "-"
                } else {
                    &namespace
                };
                format!(
                    "{} {namespace} {name}{}",
                    kind.kind,
                    if status { " status" } else { "" }
                )
            }
            _ => "none".to_owned(),
        }
    }

    #[test]
    fn paths_name_what_they_should() {
        const OURS: &str = "/apis/spiderpool.spidernet.io/v2beta1";
        let cases = [
            ("/api/v1/namespaces", "Namespace - *"),
            ("/api/v1/namespaces/shop", "Namespace - shop"),
            ("/api/v1/namespaces/shop/status", "Namespace - shop status"),
            ("/api/v1/namespaces/shop/pods", "Pod shop *"),
            ("/api/v1/pods", "Pod - *"),
            ("/api/v1/namespaces/shop/pods/web-0", "Pod shop web-0"),
            ("/api/v1/nodes/n/status", "Node - n status"),
            ("/api/v1/pods/web-0", "none"),
            ("/api/v1/namespaces/shop/pods/web-0/log", "none"),
            ("/metrics", "none"),
        ];
        for (path, expected) in cases {
            assert_eq!(describe(path), expected, "{path}");
        }
        let ours = [
            ("spiderippools/p", "SpiderIPPool - p"),
            ("namespaces/a/spiderendpoints/e", "SpiderEndpoint a e"),
            ("namespaces/a/spiderendpoints/e/status", "none"),
            ("namespaces/a/spiderippools/p", "none"),
            ("spiderippool", "none"),
        ];
        for (path, expected) in ours {
            assert_eq!(describe(&format!("{OURS}/{path}")), expected, "{path}");
        }
    }
}
