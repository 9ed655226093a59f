//! Components that were built long ago go on to work.

use mortise_plugin::Kind;

use crate::exercise::exercise;
use crate::guests::{binding, shared, source};

/// `tests/guests` with the feature `every-kind`, built against `mortise:plugin@0.1.0` of November 2026,
/// optimised for size. It is never built anew: it stands for plugins whose authors are gone. When a
/// later version of the contract comes, it stays.
const BUILT_AGAINST_0_1_0: &[u8] = include_bytes!("data/every-kind-0.1.0.wasm");

#[tokio::test]
async fn a_component_built_against_0_1_0_serves_as_every_kind() {
    let host = &shared().host;
    let component = host.load(source("old", BUILT_AGAINST_0_1_0)).unwrap();
    assert_eq!(component.kinds(), Kind::ALL);
    for kind in Kind::ALL {
        let served = exercise(host, &component, kind, binding()).await;
        assert!(served.is_ok(), "{kind}: {served:?}");
    }
}
