//! `routes`: further routes of a Pod.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::Deserialize;
use spiderpool_api::names;

use super::{AnnotationError, json_objects};
use crate::facts::PodFacts;
use crate::pool::RouteTo;
use crate::range::Family;

#[derive(Deserialize)]
struct RawRoute {
    #[serde(default)]
    dst: String,
    #[serde(default)]
    gw: String,
}

/// `ipam.spidernet.io/routes`: further routes of the Pod.
///
/// # Errors
/// [`AnnotationError`] when it is malformed or mixes families in an item.
pub fn parse_routes(text: &str) -> Result<Vec<RouteTo>, AnnotationError> {
    let key = names::POD_ROUTES;
    let items = json_objects::<RawRoute>(key, text)?.into_iter();
    items
        .map(|(item, raw)| typed(&raw).map_err(|why| AnnotationError::item(key, &item, why)))
        .collect()
}

fn typed(raw: &RawRoute) -> Result<RouteTo, &'static str> {
    let dst: IpNet = raw.dst.parse().map_err(|_| "has no CIDR as dst")?;
    let gw: IpAddr = raw.gw.parse().map_err(|_| "has no IP address as gw")?;
    if Family::of_net(dst) != Family::of(gw) {
        return Err("mixes IPv4 and IPv6");
    }
    Ok(RouteTo {
        dst: dst.trunc(),
        gw,
    })
}

/// Further routes of a Pod; none without the annotation.
///
/// # Errors
/// [`AnnotationError`] when it is malformed.
pub fn routes_of(pod: &PodFacts) -> Result<Vec<RouteTo>, AnnotationError> {
    pod.annotations
        .get(names::POD_ROUTES)
        .map_or(Ok(Vec::new()), |text| parse_routes(text))
}
