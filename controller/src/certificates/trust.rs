//! `caBundle` of the webhook configurations: what the API server trusts.

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use kube::api::PostParams;
use kube::{Api, Client};

/// Name of both configurations.
pub const CONFIGURATION: &str = "spiderpool-controller";

/// Puts the authorities into both configurations; one that is not there is nobody's mistake. Answers
/// whether all had them already.
///
/// # Errors
/// Those of the API: 409 if somebody changed one meanwhile.
pub async fn publish(client: &Client, ca: &str) -> kube::Result<bool> {
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let mut in_place = true;
    if let Some(mut found) = mutating.get_opt(CONFIGURATION).await? {
        let webhooks = found.webhooks.iter_mut().flatten();
        if put(webhooks.map(|webhook| &mut webhook.client_config), ca) {
            in_place = false;
            mutating
                .replace(CONFIGURATION, &PostParams::default(), &found)
                .await?;
        }
    }
    if let Some(mut found) = validating.get_opt(CONFIGURATION).await? {
        let webhooks = found.webhooks.iter_mut().flatten();
        if put(webhooks.map(|webhook| &mut webhook.client_config), ca) {
            in_place = false;
            validating
                .replace(CONFIGURATION, &PostParams::default(), &found)
                .await?;
        }
    }
    Ok(in_place)
}

/// Whether any was changed.
fn put<'a>(configs: impl Iterator<Item = &'a mut WebhookClientConfig>, ca: &str) -> bool {
    let wanted = Some(ByteString(ca.as_bytes().to_vec()));
    let mut changed = false;
    for config in configs {
        if config.ca_bundle != wanted {
            config.ca_bundle.clone_from(&wanted);
            changed = true;
        }
    }
    changed
}
