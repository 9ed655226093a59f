//! Signatures as cosign makes and checks them, with openssl for cosign: the layout and the signed text are those that its
//! specification writes down.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::registries::{Desk, text, two_policies};

const REFERENCE: &str = "registry.example/team/policy:1.0";

/// Type of a signed text.
const PAYLOAD: &str = "application/vnd.dev.cosign.simplesigning.v1+json";

/// Output of a shell command, which must succeed.
fn shell(command: &str) -> String {
    let output = Command::new("bash").args(["-euc", command]).output();
    let output = output.expect("run bash");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command}: {errors}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// A private key of P-256 and its public key.
fn keys(desk: &Desk, name: &str) -> (PathBuf, PathBuf) {
    let (own, public) = (
        desk.at(&format!("{name}.pem")),
        desk.at(&format!("{name}.pub")),
    );
    shell(&format!(
        "openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out {own:?}\n\
         openssl pkey -in {own:?} -pubout -out {public:?}"
    ));
    (own, public)
}

fn blob(layout: &Path, digest: &Value) -> PathBuf {
    let digest = digest.as_str().expect("a digest");
    layout.join("blobs/sha256").join(&digest["sha256:".len()..])
}

fn json_of(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).expect("read")).expect("JSON")
}

/// The manifest of the signatures of a digest.
fn signatures(layout: &Path, digest: &str) -> Value {
    let name = format!(
        "registry.example/team/policy:{}.sig",
        digest.replace(':', "-")
    );
    let index = json_of(&layout.join("index.json"));
    let mut entries = index["manifests"].as_array().expect("a list").iter();
    let entry =
        entries.find(|entry| entry["annotations"]["org.opencontainers.image.ref.name"] == *name);
    json_of(&blob(layout, &entry.expect("an entry")["digest"]))
}

#[test]
fn feature_w2_what_is_pushed_is_signed_as_cosign_does() {
    let desk = Desk::new();
    let layout = desk.at("layout");
    let ((own, public), (_, other)) = (keys(&desk, "own"), keys(&desk, "other"));
    let (file, _) = two_policies();
    let place = ["--layout", text(&layout)];
    let push = ["push", text(&file), REFERENCE, place[0], place[1]];
    let pull = ["pull", REFERENCE, place[0], place[1], "--cosign-key"];
    let fails = |key: &Path| desk.fails(&[&pull[..], &[text(key)]].concat());

    desk.does(&push);
    let told = fails(&public);
    assert!(told.contains("it is not signed by cosign"), "{told}");
    let pushed = desk.does(&[&push[..], &["--cosign-key", text(&own)]].concat());
    assert_eq!(pushed["cosigned"], true);

    let digest = pushed["digest"].as_str().expect("a digest");
    let manifest = signatures(&layout, digest);
    let layer = &manifest["layers"][0];
    assert_eq!(layer["mediaType"], PAYLOAD);
    let payload = blob(&layout, &layer["digest"]);
    let signature = layer["annotations"]["dev.cosignproject.cosign/signature"].as_str();
    let signature = signature.expect("a signature");
    let verified = shell(&format!(
        "echo {signature} | base64 -d > {0:?}/signature\n\
         openssl dgst -sha256 -verify {public:?} -signature {0:?}/signature {payload:?}",
        desk.at("")
    ));
    assert_eq!(verified, "Verified OK");
    assert_eq!(
        json_of(&payload)["critical"]["image"]["docker-manifest-digest"],
        *digest
    );

    let told = fails(&other);
    assert!(told.contains("none of its signatures by cosign"), "{told}");
    assert!(desk.installed().is_empty(), "{:?}", desk.installed());
    let told = fails(&own);
    assert!(told.contains("no PUBLIC KEY in PEM"), "{told}");
    let pulled = desk.does(&[&pull[..], &[text(&public)]].concat());
    assert_eq!(pulled["plugins"][0]["manifest"], *digest);
}

/// Put a text into the layout that openssl signed, as cosign would.
fn sign(layout: &Path, own: &Path, digest: &str, payload: &str) {
    let put = |content: &[u8]| {
        let file = layout.join("content");
        std::fs::write(&file, content).expect("write");
        let digest = format!("sha256:{}", &shell(&format!("sha256sum {file:?}"))[..64]);
        std::fs::rename(&file, blob(layout, &json!(digest))).expect("put it in its place");
        (digest, content.len())
    };
    let (text, size) = put(payload.as_bytes());
    let signature = shell(&format!(
        "openssl dgst -sha256 -sign {own:?} {:?} | base64 -w 0",
        blob(layout, &json!(text))
    ));
    let (config, config_size) = put(b"{}");
    let image = "application/vnd.oci.image.config.v1+json";
    let kind = "application/vnd.oci.image.manifest.v1+json";
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": kind,
        "config": {"mediaType": image, "size": config_size, "digest": config},
        "layers": [{
            "mediaType": PAYLOAD,
            "size": size,
            "digest": text,
            "annotations": {"dev.cosignproject.cosign/signature": signature},
        }],
    });
    let (manifest, size) = put(manifest.to_string().as_bytes());
    let file = layout.join("index.json");
    let mut index = json_of(&file);
    let name = format!(
        "registry.example/team/policy:{}.sig",
        digest.replace(':', "-")
    );
    let entries = index["manifests"].as_array_mut().expect("a list");
    entries.retain(|entry| entry["annotations"]["org.opencontainers.image.ref.name"] != *name);
    entries.push(json!({
        "mediaType": kind,
        "size": size,
        "digest": manifest,
        "annotations": {"org.opencontainers.image.ref.name": name},
    }));
    std::fs::write(&file, index.to_string()).expect("write");
}

#[test]
fn feature_w2_what_cosign_signed_is_pulled() {
    let desk = Desk::new();
    let layout = desk.at("layout");
    let (own, public) = keys(&desk, "own");
    let (file, _) = two_policies();
    let place = ["--layout", text(&layout)];
    let pushed = desk.does(&["push", text(&file), REFERENCE, place[0], place[1]]);
    let digest = pushed["digest"].as_str().expect("a digest").to_owned();
    let about = |digest: &str, kind: &str| {
        format!(
            "{{\"critical\":{{\"identity\":{{\"docker-reference\":\"registry.example/team/policy\"}},\
             \"image\":{{\"docker-manifest-digest\":\"{digest}\"}},\"type\":\"{kind}\"}},\
             \"optional\":{{\"creator\":\"alice\"}}}}"
        )
    };
    let pull = [
        "pull",
        REFERENCE,
        place[0],
        place[1],
        "--cosign-key",
        text(&public),
    ];
    let kind = "cosign container image signature";
    // A good signature over a text about something else is none.
    for payload in [
        about(&format!("sha256:{}", "0".repeat(64)), kind),
        about(&digest, "another signature"),
        "no JSON".to_owned(),
    ] {
        sign(&layout, &own, &digest, &payload);
        let told = desk.fails(&pull);
        assert!(
            told.contains("none of its signatures by cosign"),
            "{payload}: {told}"
        );
        assert!(desk.installed().is_empty(), "{:?}", desk.installed());
    }
    sign(&layout, &own, &digest, &about(&digest, kind));
    assert_eq!(desk.does(&pull)["plugins"][0]["manifest"], *digest);
}
