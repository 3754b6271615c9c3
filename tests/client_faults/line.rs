//! The proxy does to requests what it is told to, and nothing else: without that the other tests would prove nothing.

use std::net::SocketAddr;
use std::sync::mpsc;
use std::time::Duration;

use serde_json::json;

use crate::faults::Fault;
use crate::harness::link::Link;
use crate::harness::{Auth, BrokerOptions, Store};
use crate::proxy::Proxy;

/// Creates a task through the proxy; whether an answer came.
fn create(proxy: SocketAddr) -> bool {
    Link::open(proxy, None).call("store/create", r#"{"toolName":"tool"}"#).is_some()
}

#[test]
fn a_dropped_request_never_arrives_and_a_lost_or_cut_reply_was_carried_out() {
    let broker = BrokerOptions::new(Store::Memory).auth(Auth::Off).start();
    let proxy = Proxy::to(broker.address());
    let tasks = || {
        let listed = Link::open(broker.address(), None).ask("store/list", &json!({})).result();
        listed["tasks"].as_array().unwrap().len()
    };
    // Fault, whether an answer comes, how many tasks there are then.
    let cases = [
        (Some(Fault::Drop), false, 0),
        (Some(Fault::Lose), false, 1),
        (Some(Fault::Cut(0)), false, 2),
        (Some(Fault::Cut(127)), false, 3),
        (Some(Fault::Cut(255)), false, 4),
        (Some(Fault::Delay(Duration::from_millis(20))), true, 5),
        (Some(Fault::Replace), true, 6),
        (None, true, 7),
    ];
    for (fault, answered, there) in cases {
        proxy.arm(fault.into_iter().collect());
        assert_eq!(create(proxy.address()), answered, "{fault:?}");
        assert_eq!(tasks(), there, "{fault:?}");
        assert_eq!(proxy.disarm(), fault.into_iter().collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn a_stream_passes_until_it_is_cut_and_none_begins_while_they_are_held() {
    let broker = BrokerOptions::new(Store::Memory).auth(Auth::Off).start();
    let proxy = Proxy::to(broker.address());
    let (tell, seen) = mpsc::channel();
    let watcher = std::thread::spawn({
        let link = Link::open(proxy.address(), None);
        move || link.watch(|params| tell.send(params).unwrap())
    });
    proxy.streams(1).await;
    let deadline = Duration::from_secs(10);
    assert!(seen.recv_timeout(deadline).unwrap().get("position").is_some(), "first comes store/synced");
    assert!(create(proxy.address()));
    assert_eq!(seen.recv_timeout(deadline).unwrap()["kind"], "create");

    proxy.hold_streams();
    watcher.join().unwrap();
    let mut passed = false;
    Link::open(proxy.address(), None).watch(|_| passed = true);
    assert!(!passed, "a stream began although they are held");
    assert!(create(proxy.address()), "a call passes while streams are held");
}
