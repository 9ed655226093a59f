//! TLS of the main and the admin side with clients that we did not write: curl, and OpenSSL as Python has it.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use crate::support::{PATIENCE, Server, have, until};

/// An authority with a folder of its own, where certificates that it signs are put.
pub(crate) struct Authority {
    folder: tempfile::TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new([]).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).expect("a certificate");
        let folder = tempfile::tempdir().expect("make a folder");
        let path = folder.path().join("ca.pem");
        std::fs::write(path, certificate.pem()).expect("write");
        let issuer = Issuer::new(params, key);
        Self { folder, issuer }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Put `NAME.pem` and `NAME.key` of a certificate for this machine there, whose subject is `subject`.
    pub(crate) fn sign(&self, name: &str, subject: &str) {
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut params = CertificateParams::new(names).expect("names");
        params.distinguished_name.push(DnType::CommonName, subject);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("signed");
        for (ending, text) in [("pem", certificate.pem()), ("key", key.serialize_pem())] {
            std::fs::write(self.file(&format!("{name}.{ending}")), text).expect("write");
        }
    }

    /// The keys of a table `tls` with the certificate `server`.
    fn table(&self, table: &str, more: &str) -> String {
        let (cert, key) = (self.file("server.pem"), self.file("server.key"));
        format!("[{table}.tls]\ncert = {cert:?}\nkey = {key:?}\n{more}\n")
    }

    /// Arguments of curl by which it knows the authority, and shows a certificate of `client`.
    fn curl(&self, client: Option<(&Self, &str)>, more: &[&str]) -> Command {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--max-time", "60", "--cacert"])
            .arg(self.file("ca.pem"));
        if let Some((authority, name)) = client {
            let (cert, key) = (format!("{name}.pem"), format!("{name}.key"));
            curl.arg("--cert").arg(authority.file(&cert));
            curl.arg("--key").arg(authority.file(&key));
        }
        curl.args(more);
        curl
    }
}

/// A server with TLS, and the authority of its certificate.
pub(crate) fn secured(more: &str, script: &str) -> (Server, Authority) {
    let authority = Authority::new();
    authority.sign("server", "first");
    let server = Server::scripted(script, &authority.table("server", more));
    (server, authority)
}

fn text(output: &Output) -> String {
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn run(command: &mut Command) -> Output {
    command.output().expect("run a client")
}

/// A page of a server, as curl gets it.
pub(crate) fn page_over_tls(server: &Server, authority: &Authority, path: &str) -> String {
    text(&run(authority.curl(None, &[]).arg(url(server, path))))
}

fn url(server: &Server, path: &str) -> String {
    format!("https://{}{path}", server.address())
}

/// Shakes hands at most once: by Python, whose TLS is OpenSSL's. Prints the certificate, or fails.
const HANDSHAKE: &str = r#"
import socket, ssl, sys
host, port = sys.argv[1].rsplit(":", 1)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
context.set_ciphers((sys.argv[3] if len(sys.argv) > 3 else "ALL") + ":@SECLEVEL=0")
if len(sys.argv) > 2:
    version = getattr(ssl.TLSVersion, sys.argv[2])
    context.minimum_version, context.maximum_version = version, version
with socket.create_connection((host, int(port)), 60) as plain:
    with context.wrap_socket(plain) as stream:
        sys.stdout.buffer.write(stream.getpeercert(binary_form=True))
"#;

/// The certificate that a server shows in a handshake, if there is one; of this version and with these ciphers only.
fn handshake(address: &str, arguments: &[&str]) -> Result<Vec<u8>, String> {
    let output = Command::new("python3")
        .args(["-W", "ignore", "-c", HANDSHAKE, address])
        .args(arguments)
        .output()
        .expect("run python3");
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

const VERSION: &str = "/version";
const SAY: &str = "default = \"ab\"";

#[test]
fn feature_z4_both_protocols_are_spoken_over_tls_by_name() {
    if !have(&["curl"]) {
        return;
    }
    let (mut server, authority) = secured("", SAY);
    for (flag, version) in [("--http1.1", "1.1"), ("--http2", "2")] {
        let wanted = ["--write-out", "\n%{http_version}", flag];
        let mut curl = authority.curl(None, &wanted);
        let said = text(&run(curl.arg(url(&server, VERSION))));
        assert!(said.contains("\"version\""), "{said}");
        assert_eq!(said.lines().last(), Some(version));
    }
    // Who does not know the authority is not spoken to by mistake.
    let stranger = Authority::new();
    let mut curl = stranger.curl(None, &[]);
    assert!(!run(curl.arg(url(&server, VERSION))).status.success());
    server.assert_sound();
}

/// Connections to a server that are open.
fn connections_to(server: &Server) -> usize {
    let (_, port) = server.address().rsplit_once(':').expect("a port");
    let local = format!(":{:04X}", port.parse::<u16>().expect("a number"));
    let table = std::fs::read_to_string("/proc/net/tcp").expect("connections");
    let rows = table
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    rows.filter(|row| row[1].ends_with(&local) && row[3] == "01")
        .count()
}

#[test]
fn models_of_another_server_are_asked_over_tls_and_http2() {
    let (upstream, authority) = secured("", "default = \"Sent over TLS.\"\ntoken_delay_ms = 20");
    let asked = |ca: &str| {
        format!(
            "[[models]]\nname = \"remote\"\n[models.upstream]\nurls = [\"https://{}/v1\"]\nmodel = \"scripted\"\n\
             health_check = \"config-only\"\n{ca}\n",
            upstream.address()
        )
    };
    let body = serde_json::json!({"model": "remote", "stream": true, "messages": [{"role": "user", "content": "Hi"}]});
    // The authority is not one of the public ones.
    let stranger = Server::configured(&asked(""));
    let refused = stranger.post("/v1/chat/completions", &body);
    assert_eq!(refused.status(), 502, "{}", refused.text());
    let trusting = Server::configured(&asked(&format!("ca_file = {:?}", authority.file("ca.pem"))));
    // The first tells that it speaks HTTP/2.
    assert_eq!(trusting.post("/v1/chat/completions", &body).status(), 200);
    let most = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..16)
            .map(|_| scope.spawn(|| trusting.post("/v1/chat/completions", &body).text()))
            .collect();
        let mut most = 0;
        while callers.iter().any(|caller| !caller.is_finished()) {
            most = most.max(connections_to(&upstream));
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        for caller in callers {
            let said = caller.join().expect("an answer");
            let pieces = crate::support::client::events(&said);
            let content = |piece: &serde_json::Value| {
                piece["choices"][0]["delta"]["content"]
                    .as_str()
                    .map(str::to_owned)
            };
            let text: String = pieces.iter().filter_map(content).collect();
            assert_eq!(text, "Sent over TLS.", "{said}");
        }
        most
    });
    // Streams share a connection, which those of HTTP/1.1 cannot.
    assert_eq!(most, 1, "connections for 16 streams");
}

#[test]
fn feature_z4_old_protocols_are_refused() {
    if !have(&["curl", "python3"]) {
        return;
    }
    let (mut server, authority) = secured("", SAY);
    let versions = [
        ("TLSv1", false),
        ("TLSv1_1", false),
        ("TLSv1_2", true),
        ("TLSv1_3", true),
    ];
    for (version, taken) in versions {
        let shaken = handshake(server.address(), &[version]);
        assert_eq!(shaken.is_ok(), taken, "{version}: {shaken:?}");
        if let Err(error) = shaken {
            // Refused by the server, not by a client that does not speak it.
            assert!(error.contains("ALERT"), "{version}: {error}");
        }
    }
    // No cipher without forward secrecy or with block chaining.
    for cipher in [
        "AES128-GCM-SHA256",
        "ECDHE-ECDSA-AES128-SHA",
        "ECDHE-ECDSA-AES128-SHA256",
    ] {
        let shaken = handshake(server.address(), &["TLSv1_2", cipher]);
        let error = shaken.expect_err("a weak cipher");
        assert!(error.contains("HANDSHAKE_FAILURE"), "{cipher}: {error}");
    }
    let metric = "mortise_tls_handshakes_failed_total ";
    let mut curl = authority.curl(None, &[]);
    let page = text(&run(curl.arg(url(&server, "/metrics"))));
    let line = page.lines().find(|line| line.starts_with(metric));
    assert_eq!(line, Some("mortise_tls_handshakes_failed_total 5"));
    server.assert_sound();

    let (mut server, _authority) = secured("min_version = \"1.3\"", SAY);
    for (version, taken) in [("TLSv1_2", false), ("TLSv1_3", true)] {
        let shaken = handshake(server.address(), &[version]);
        assert_eq!(shaken.is_ok(), taken, "{version}");
    }
    server.assert_sound();
}

/// Whether a server shows a certificate of this subject.
fn shows(server: &Server, subject: &str) -> bool {
    let certificate = handshake(server.address(), &[]).expect("a handshake");
    let mut parts = certificate.windows(subject.len());
    parts.any(|part| part == subject.as_bytes())
}

#[test]
fn feature_z4_certificates_are_read_again_in_the_middle_of_a_stream() {
    if !have(&["curl", "python3"]) {
        return;
    }
    let script = "default = \"abcdefghij\"\ntoken_delay_ms = 20\nrepeat = 30";
    let (mut server, authority) = secured("", script);
    let body =
        r#"{"model": "scripted", "stream": true, "messages": [{"role": "user", "content": "Hi"}]}"#;
    let arguments = ["--no-buffer", "--http2", "--json", body];
    let mut stream: Child = authority
        .curl(None, &arguments)
        .arg(url(&server, "/v1/chat/completions"))
        .stdout(Stdio::piped())
        .spawn()
        .expect("run curl");
    let mut out = stream.stdout.take().expect("piped");
    let mut begun = vec![0; 64];
    out.read_exact(&mut begun).expect("the stream begins");
    assert!(shows(&server, "first"));

    authority.sign("server", "second");
    server.signal("HUP");
    until("the second certificate is shown", || {
        shows(&server, "second")
    });
    // A key of another certificate is refused, and what served goes on.
    let key = KeyPair::generate().expect("a key").serialize_pem();
    std::fs::write(authority.file("server.key"), key).expect("write");
    server.signal("HUP");
    let refused = server.wait_for_log(|line| line.contains("the settings were not taken"));
    assert!(refused.contains("server.tls.cert"), "{refused}");
    assert!(shows(&server, "second"));

    let mut rest = String::new();
    out.read_to_string(&mut rest).expect("the stream goes on");
    assert!(stream.wait().expect("curl ends").success());
    let all = String::from_utf8_lossy(&begun).into_owned() + &rest;
    assert!(all.ends_with("data: [DONE]\n\n"), "{all}");
    let tokens = all.matches("\"content\":").count();
    assert!(tokens >= 300, "{tokens} pieces of 300 tokens");
    server.assert_sound();
}

#[test]
fn feature_z4_the_admin_side_asks_for_a_certificate_and_a_key() {
    if !have(&["curl"]) {
        return;
    }
    let (operators, strangers) = (Authority::new(), Authority::new());
    for (authority, name) in [
        (&operators, "server"),
        (&operators, "ann"),
        (&strangers, "eve"),
    ] {
        authority.sign(name, name);
    }
    let ca = format!("client_ca = {:?}", operators.file("ca.pem"));
    let admin = format!(
        "[admin]\nport = 0\nkey = \"an admin key of the tests\"\n{}",
        operators.table("admin", &ca)
    );
    let mut server = Server::scripted(SAY, &admin);
    let line = server.wait_for_log(|line| line.contains("admin side on https://"));
    let (_, address) = line.split_once("admin side on ").expect("an address");
    let address = format!("{}/v1/admin/models", address.trim_end_matches(['"', '}']));
    let ask = |client: Option<(&Authority, &str)>, key: &str| {
        let header = format!("authorization: Bearer {key}");
        let wanted = ["--write-out", "%{http_code}", "--output", "/dev/null"];
        let mut curl = operators.curl(client, &wanted);
        let output = run(curl.args(["--header", &header]).arg(&address));
        (
            output.status.success(),
            String::from_utf8_lossy(&output.stdout).into_owned(),
        )
    };
    let key = "an admin key of the tests";
    assert_eq!(
        ask(Some((&operators, "ann")), key),
        (true, "200".to_owned())
    );
    assert_eq!(ask(Some((&operators, "ann")), "another key").1, "403");
    let models = |arguments: &[&Path]| {
        let url = address.trim_end_matches("/v1/admin/models");
        let mut list = Command::new(crate::support::binary());
        list.env("ADMIN_KEY", key)
            .args([
                "models",
                "list",
                "--admin-key-env",
                "ADMIN_KEY",
                "--admin-url",
                url,
                "--admin-ca",
            ])
            .args(arguments);
        let output = run(&mut list);
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.success(), told)
    };
    let file = |name: &str| operators.file(name);
    let (ca, flags) = (
        file("ca.pem"),
        ["--admin-cert", "--admin-cert-key"].map(Path::new),
    );
    let (listed, told) = models(&[&ca, flags[0], &file("ann.pem"), flags[1], &file("ann.key")]);
    assert!(listed && told.contains("scripted"), "{told}");
    assert!(!models(&[&ca]).0, "a client without a certificate");
    for unknown in [None, Some((&strangers, "eve"))] {
        let (shaken, status) = ask(unknown, key);
        assert!(!shaken && status == "000", "{status}");
    }
    server.assert_sound();
}

/// Bytes that the server sends to a peer that writes `write` and then waits.
fn told(address: &str, write: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).expect("connect");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.write_all(write).expect("write");
    let mut read = Vec::new();
    // A reset is an end as well.
    if let Err(error) = stream.read_to_end(&mut read) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }
    read
}

#[test]
fn feature_z4_slow_handshakes_and_clear_text_are_ended() {
    let (mut server, _authority) = secured("\n[server]\nheader_timeout_ms = 200", SAY);
    // The header of a record of 512 bytes, of which none comes.
    for opening in [&b""[..], b"\x16", b"\x16\x03\x01\x02\x00"] {
        let read = told(server.address(), opening);
        assert!(read.len() < 16, "{read:?}");
    }
    let request = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let told = String::from_utf8(told(server.address(), request)).expect("UTF-8");
    assert!(told.starts_with("HTTP/1.1 400 "), "{told}");
    let (head, body) = told.split_once("\r\n\r\n").expect("a body");
    assert!(body.contains("https://"), "{told}");
    let length = format!("content-length: {}", body.len());
    assert!(head.contains(&length), "{told}");
    server.assert_sound();
}

#[test]
fn feature_z4_handshakes_that_wait_give_their_places_to_others() {
    if !have(&["curl"]) {
        return;
    }
    let (mut server, authority) = secured("\n[server]\nmax_connections = 4", SAY);
    let silent: Vec<TcpStream> = (0..40)
        .map(|_| TcpStream::connect(server.address()).expect("connect"))
        .collect();
    let mut curl = authority.curl(None, &[]);
    assert!(text(&run(curl.arg(url(&server, VERSION)))).contains("version"));
    drop(silent);
    server.assert_sound();
}

/// The message and status of a server that does not start with these arguments.
fn refusal(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(crate::support::binary())
        .args(["serve", "--port", "0"])
        .args(arguments)
        .output()
        .expect("run mortise");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), told)
}

#[test]
fn feature_c1_z4_other_machines_are_not_spoken_to_in_the_clear_by_mistake() {
    let (code, told) = refusal(&["--host", "0.0.0.0"]);
    assert_eq!(code, Some(2));
    assert!(
        told.contains("`--plaintext`") && told.contains("[server.tls]"),
        "{told}"
    );
    let folder = tempfile::tempdir().expect("make a folder");
    let file = folder.path().join("mortise.toml");
    let configured = |text: &str| {
        std::fs::write(&file, text).expect("write");
        refusal(&["--config", file.to_str().expect("UTF-8")])
    };
    let admin = "[admin]\nhost = \"0.0.0.0\"\nport = 0\n";
    let (code, told) = configured(&format!("{admin}key = \"an admin key of the tests\"\n"));
    assert_eq!(code, Some(2));
    assert!(told.contains("`admin.plaintext = true`"), "{told}");
    let (code, told) = configured(&format!("{admin}plaintext = true\n"));
    assert_eq!(code, Some(2));
    assert!(told.contains("needs a key"), "{told}");
    let tls = "[server.tls]\ncert = \"missing.pem\"\nkey = \"missing.key\"\n";
    let (code, told) = configured(tls);
    assert_eq!(code, Some(2));
    assert!(
        told.contains("server.tls.cert") && told.contains("missing.pem"),
        "{told}"
    );

    let server = Server::start(&["--host", "0.0.0.0", "--plaintext"]);
    let port = server.address().rsplit(':').next().expect("a port");
    let address = format!("127.0.0.1:{port}");
    let ready = crate::support::client::Request::get("/health").send(&address);
    assert_eq!(ready.status(), 200);
}

fn over_socket(path: &Path, page: &str) -> Output {
    let mut curl = Command::new("curl");
    curl.args([
        "--silent",
        "--show-error",
        "--max-time",
        "60",
        "--unix-socket",
    ]);
    run(curl.arg(path).arg(format!("http://localhost{page}")))
}

#[test]
fn feature_z4_a_socket_in_the_file_system_serves_whom_its_mode_allows() {
    use std::os::unix::fs::PermissionsExt as _;
    if !have(&["curl"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("make a folder");
    let path = folder.path().join("mortise.sock");
    // One that a server left behind when it was killed.
    drop(std::os::unix::net::UnixListener::bind(&path).expect("bind"));
    let config = format!("[server]\nsocket = {path:?}\nsocket_mode = 0o620\n");
    let mut server = Server::scripted(SAY, &config);
    let permissions = std::fs::metadata(&path).expect("there").permissions();
    assert_eq!(permissions.mode() & 0o777, 0o620);
    assert!(text(&over_socket(&path, VERSION)).contains("version"));
    // Nobody takes it from a server that listens.
    let file = folder.path().join("other.toml");
    std::fs::write(&file, &config).expect("write");
    let (code, told) = refusal(&["--config", file.to_str().expect("UTF-8")]);
    assert_eq!(code, Some(1));
    assert!(told.contains("another server listens there"), "{told}");
    assert!(text(&over_socket(&path, VERSION)).contains("version"));
    server.signal("TERM");
    assert!(server.wait().success());
    assert!(!path.exists(), "the file of the socket is left behind");

    std::fs::write(&path, "not a socket").expect("write");
    let (code, told) = refusal(&["--config", file.to_str().expect("UTF-8")]);
    assert_eq!(code, Some(1));
    assert!(told.contains("something else than a socket"), "{told}");
    assert!(path.is_file());
}
