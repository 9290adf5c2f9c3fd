//! The observer on this kernel: a veth pair as the parent NIC's cable, frames tagged by hand.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "a test fails by panicking, its helpers too"
)]

mod counting;
mod foreign;
mod offload;
mod rig;

#[tokio::test(flavor = "multi_thread")]
async fn vlans_are_told_apart_with_and_without_offload() {
    counting::vlans_are_told_apart_with_and_without_offload("vlans_are_told_apart").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_that_leave_are_counted_by_the_same_length() {
    counting::frames_that_leave_are_counted_by_the_same_length("frames_that_leave").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_kind_is_caught_once() {
    counting::each_kind_is_caught_once("each_kind_is_caught_once").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_follow_the_pod() {
    counting::entries_follow_the_pod("entries_follow_the_pod").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_filters_see_every_frame_and_ours_is_there_once() {
    foreign::foreign_filters_see_every_frame_and_ours_is_there_once("foreign_filters").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn detach_leaves_nothing_of_ours() {
    foreign::detach_leaves_nothing_of_ours("detach_leaves_nothing_of_ours").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ingress_qdisc_stays() {
    foreign::an_ingress_qdisc_stays("an_ingress_qdisc_stays").await;
}
