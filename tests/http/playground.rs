//! The page at the root of the server, as it is sent. `tests/sdk/browser.rs` has what it does.

use crate::support::Server;
use crate::support::client::Request;

#[test]
fn feature_z12_the_page_is_sent_once_and_can_be_left_out() {
    let server = Server::start(&[]);
    let page = server.get("/");
    assert_eq!(page.status(), 200);
    assert_eq!(
        page.header("content-type"),
        Some("text/html; charset=utf-8")
    );
    let tag = page.header("etag").expect("a tag").to_owned();
    for known in [tag.clone(), format!("\"other\", W/{tag}"), "*".to_owned()] {
        let again = server.send(&Request::get("/").header("if-none-match", &known));
        assert_eq!((again.status(), again.text().len()), (304, 0), "{known}");
        assert_eq!(again.header("etag"), Some(&*tag));
    }
    let other = server.send(&Request::get("/").header("if-none-match", "\"other\""));
    assert_eq!(other.status(), 200);
    let text = page.text();
    let files = text.split("\"playground/").skip(1);
    let files: Vec<&str> = files.filter_map(|rest| rest.split('"').next()).collect();
    assert!(files.len() >= 4, "{files:?}");
    for file in files {
        let response = server.get(&format!("/playground/{file}"));
        assert_eq!(response.status(), 200, "{file}");
        let policy = response
            .header("content-security-policy")
            .expect("a policy");
        assert!(policy.starts_with("default-src 'none';"), "{policy}");
        assert_eq!(response.header("x-content-type-options"), Some("nosniff"));
    }
    for absent in [
        "/playground/",
        "/playground/..%2fCargo.toml",
        "/playground/x.js",
        "/playground",
    ] {
        let refused = server.get(absent);
        assert_eq!(refused.status(), 404, "{absent}");
        assert_eq!(refused.json()["error"]["code"], "unknown_route", "{absent}");
    }
    let without = Server::configured("[server]\nplayground = false\n");
    for path in ["/", "/playground/main.js"] {
        assert_eq!(without.get(path).status(), 404, "{path}");
    }
    assert!(!without.get("/openapi.json").text().contains("layground"));
}
