//! URLs as they are printed: logs and messages are read by more people than settings are.

/// Stands for what is not shown.
const HIDDEN: &str = "***";

/// The URL without what may be secret: user, password, query and fragment. Of a text that is no URL
/// whatever could be one of those.
#[must_use]
pub fn without_secrets(url: &str) -> String {
    let is_scheme = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let (scheme, rest) = match url.split_once("://") {
        Some((scheme, rest)) if is_scheme(scheme) => (format!("{scheme}://"), rest),
        _ => (String::new(), url),
    };
    // a password may have any sign: only after the last @ there is none
    let (user, place) = match rest.rsplit_once('@') {
        Some((_, place)) => (format!("{HIDDEN}@"), place),
        None => (String::new(), rest),
    };
    match place.find(['?', '#']) {
        Some(at) => {
            let (place, after) = place.split_at(at);
            let sign: String = after.chars().take(1).collect();
            format!("{scheme}{user}{place}{sign}{HIDDEN}")
        }
        None => format!("{scheme}{user}{place}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[rustfmt::skip] // a case a line
    fn secrets_are_hidden_and_the_place_is_not() {
        for (url, shown) in [
            ("https://sim:8443", "https://sim:8443"),
            ("http://[::1]:80/v1", "http://[::1]:80/v1"),
            ("", ""),
            ("sim:8080", "sim:8080"),
            ("http://u:geheim@sim:80", "http://***@sim:80"),
            ("http://geheim@sim", "http://***@sim"),
            ("u:geheim@sim", "***@sim"),
            ("http://u:geh@eim@sim/x", "http://***@sim/x"),
            ("http://u:ge?h#eim/@sim", "http://***@sim"),
            ("http://sim/?token=geheim", "http://sim/?***"),
            ("http://sim#geheim", "http://sim#***"),
            ("http://u:geheim@sim?x=geheim@y", "http://***@y"),
            ("u:geheim://x@sim", "***@sim"),
        ] {
            assert_eq!(without_secrets(url), shown, "{url}");
        }
    }
}
