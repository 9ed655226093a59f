//! A registry that has been taken over: whatever it sends, nothing is installed.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::registries::{Desk, text};
use crate::support::example::root;

/// Token of the registry's own token service, and who may have one.
const TOKEN: &str = "a-token";
const ALICE: &str = "Basic YWxpY2U6b3Blbg==";

/// Attack of the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attack {
    /// No attack.
    None,
    /// No attack, by a registry that wants a token.
    Token,
    /// One byte of the layer is another.
    Layer,
    /// The layer is cut short.
    Short,
    /// The manifest of the tag says another digest than it has.
    Digest,
    /// The manifest has the media type of an index.
    Index,
    /// The layer has the media type of a tar file.
    Tar,
    /// The layer never ends.
    EndlessLayer,
    /// The manifest never ends.
    EndlessManifest,
    /// The layer is at a private address.
    Private,
    /// The layer is at another port of this machine.
    Port,
    /// The layer is behind redirects without end.
    Circle,
    /// The token service is at a private address.
    PrivateToken,
    /// The layer is another plugin's name for a file outside.
    Traversal,
}

/// The registry, which stores what it is given and answers as it was told to.
struct Hostile {
    name: String,
    attack: Arc<Mutex<Attack>>,
}

type Stored = Arc<Mutex<HashMap<String, (String, Vec<u8>)>>>;

impl Hostile {
    fn start(inside: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let name = listener.local_addr().expect("an address").to_string();
        let attack = Arc::new(Mutex::new(Attack::None));
        let (own, told) = (name.clone(), Arc::clone(&attack));
        std::thread::spawn(move || {
            let stored = Stored::default();
            for stream in listener.incoming().flatten() {
                let attack = *told.lock().expect("the attack");
                let (stored, own, inside) = (Arc::clone(&stored), own.clone(), inside.clone());
                std::thread::spawn(move || answer(stream, attack, &stored, &own, &inside));
            }
        });
        Self { name, attack }
    }

    fn does(&self, attack: Attack) {
        *self.attack.lock().expect("the attack") = attack;
    }
}

/// Method, target, headers in lower case, and content of a request.
type Received = (String, String, HashMap<String, String>, Vec<u8>);

/// The request that comes; `None` if it breaks off.
fn request(stream: &TcpStream) -> Option<Received> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split(' ').map(str::to_owned);
    let (method, target) = (words.next()?, words.next()?);
    let mut headers = HashMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else {
            break;
        };
        headers.insert(name.to_lowercase(), value.trim().to_owned());
    }
    let length = headers
        .get("content-length")
        .and_then(|length| length.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    Some((method, target, headers, body))
}

fn respond(mut stream: &TcpStream, status: &str, headers: &[(&str, &str)], body: &[u8]) {
    let mut head = format!(
        "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    let _ = stream.write_all(format!("{head}\r\n").as_bytes());
    let _ = stream.write_all(body);
}

/// Content without end, until the other side has enough.
fn endless(mut stream: &TcpStream, kind: &str) {
    let head =
        format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n");
    let _ = stream.write_all(head.as_bytes());
    let chunk = [&b"10000\r\n"[..], &[b' '; 0x10000], b"\r\n"].concat();
    while stream.write_all(&chunk).is_ok() {}
}

fn answer(stream: TcpStream, attack: Attack, stored: &Stored, own: &str, inside: &str) {
    let Some((method, target, headers, body)) = request(&stream) else {
        return;
    };
    let say = |status: &str, headers: &[(&str, &str)], body: &[u8]| {
        respond(&stream, status, headers, body)
    };
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let authorization = headers.get("authorization").map(String::as_str);
    if path == "/token" {
        let scope = query.contains("scope=repository%3Ateam%2Fpolicy%3Apull%2Cpush");
        return match authorization == Some(ALICE) && scope {
            true => say(
                "200 OK",
                &[],
                format!("{{\"token\": {TOKEN:?}}}").as_bytes(),
            ),
            false => say("401 Unauthorized", &[], b"{}"),
        };
    }
    let wants = matches!(attack, Attack::Token | Attack::PrivateToken);
    if wants && authorization != Some(&format!("Bearer {TOKEN}")) {
        let realm = match attack {
            Attack::PrivateToken => format!("http://{inside}/token"),
            _ => format!("http://{own}/token"),
        };
        let challenge = format!(
            "Bearer realm=\"{realm}\",service=\"here\",scope=\"repository:team/policy:pull,push\""
        );
        return say("401 Unauthorized", &[("www-authenticate", &challenge)], b"");
    }
    let mut stored = stored.lock().expect("what is stored");
    let kind = headers.get("content-type").cloned().unwrap_or_default();
    match method.as_str() {
        "POST" => say("202 Accepted", &[("location", &format!("{path}1"))], b""),
        "PUT" => {
            let digest = query
                .strip_prefix("digest=")
                .map(|digest| digest.replace("%3A", ":"));
            let key = match digest {
                Some(digest) => path.replace("uploads/1", &digest),
                None => "manifest".to_owned(),
            };
            stored.insert(key, (kind, body));
            say("201 Created", &[], b"");
        }
        _ if path.contains("/manifests/") => match stored.get("manifest") {
            Some((kind, manifest)) => give_manifest(&stream, attack, kind, manifest),
            None => say("404 Not Found", &[], b""),
        },
        _ => match stored.get(path) {
            Some((_, content)) => give_content(&stream, attack, content, [own, path, inside]),
            None => say("404 Not Found", &[], b""),
        },
    }
}

fn give_manifest(stream: &TcpStream, attack: Attack, kind: &str, manifest: &[u8]) {
    let text = String::from_utf8_lossy(manifest).into_owned();
    let changed = match attack {
        Attack::Tar => text.replace(
            "\"application/wasm\"",
            "\"application/vnd.oci.image.layer.v1.tar+gzip\"",
        ),
        Attack::Traversal => text
            .replace("policy.wasm", "../../../etc/policy.wasm")
            .replace("sha256:", "sha256:../"),
        _ => text,
    };
    let none = format!("sha256:{}", "0".repeat(64));
    let mut headers = vec![("content-type", kind)];
    match attack {
        Attack::EndlessManifest => return endless(stream, kind),
        Attack::Index => {
            headers = vec![("content-type", "application/vnd.oci.image.index.v1+json")]
        }
        Attack::Digest => headers.push(("docker-content-digest", &none)),
        _ => {}
    }
    respond(stream, "200 OK", &headers, changed.as_bytes());
}

fn give_content(
    stream: &TcpStream,
    attack: Attack,
    content: &[u8],
    [own, path, inside]: [&str; 3],
) {
    let target = match attack {
        Attack::EndlessLayer => return endless(stream, "application/octet-stream"),
        Attack::Layer => {
            let mut changed = content.to_vec();
            let middle = changed.len() / 2;
            changed[middle] ^= 1;
            return respond(stream, "200 OK", &[], &changed);
        }
        Attack::Short => return respond(stream, "200 OK", &[], &content[..content.len() / 2]),
        Attack::Private => "http://169.254.169.254/latest/meta-data".to_owned(),
        Attack::Port => format!("http://{inside}/inside"),
        Attack::Circle => format!("http://{own}{path}"),
        _ => return respond(stream, "200 OK", &[], content),
    };
    respond(
        stream,
        "307 Temporary Redirect",
        &[("location", &target)],
        b"",
    );
}

/// A service of this machine that nobody outside may reach; how often it was asked.
fn inside() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let name = listener.local_addr().expect("an address").to_string();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            count.fetch_add(1, Ordering::SeqCst);
            respond(&stream, "200 OK", &[], b"{\"token\": \"x\"}");
        }
    });
    (name, asked)
}

#[test]
fn feature_w2_a_registry_that_was_taken_over_installs_nothing() {
    let (inside, asked) = inside();
    let registry = Hostile::start(inside);
    let author = Desk::new();
    let file = root().join("host/bundle/prebuilt/policy.wasm");
    let reference = format!("{}/team/policy:1", registry.name);
    author.does(&["push", text(&file), &reference]);
    for (attack, told) in [
        (Attack::Layer, "another digest"),
        (Attack::Short, "bytes of"),
        (Attack::Digest, "the registry says"),
        (Attack::Index, "media type"),
        (Attack::Tar, "no WebAssembly component"),
        (Attack::EndlessLayer, "more than"),
        (Attack::EndlessManifest, "more than"),
        (Attack::Private, "not a public address"),
        (Attack::Port, "not a public address"),
        (Attack::Circle, "redirected too often"),
        (Attack::PrivateToken, "not a public address"),
        (Attack::Traversal, "no digest"),
    ] {
        registry.does(attack);
        let operator = Desk::new();
        operator.log_in(&registry.name, "YWxpY2U6b3Blbg==");
        let message = operator.fails(&["pull", &reference]);
        assert!(message.contains(told), "{attack:?}: {message}");
        assert!(
            operator.installed().is_empty(),
            "{attack:?}: {:?}",
            operator.installed()
        );
    }
    assert_eq!(asked.load(Ordering::SeqCst), 0, "nothing inside was asked");
    // The same registry, when it behaves.
    registry.does(Attack::None);
    let operator = Desk::new();
    operator.does(&["pull", &reference]);
    assert_eq!(
        operator.installed(),
        ["mortise-plugins.lock", "policy.wasm"]
    );
    // What is there and locked stays as it was, whatever comes later.
    let before = std::fs::read(operator.plugins().join("policy.wasm")).expect("read");
    for attack in [Attack::Layer, Attack::Tar, Attack::Port] {
        registry.does(attack);
        operator.fails(&["pull", &reference, "--update"]);
        let after = std::fs::read(operator.plugins().join("policy.wasm")).expect("read");
        assert!(before == after, "{attack:?}");
    }
}

#[test]
fn feature_w2_tokens_are_had_for_the_credentials_that_containers_have() {
    let registry = Hostile::start(String::new());
    registry.does(Attack::Token);
    let (author, stranger) = (Desk::new(), Desk::new());
    let file = root().join("host/bundle/prebuilt/policy.wasm");
    let reference = format!("{}/team/policy:1", registry.name);
    let told = author.fails(&["push", text(&file), &reference]);
    assert!(told.contains("401"), "{told}");
    author.log_in(&registry.name, "YWxpY2U6b3Blbg==");
    author.does(&["push", text(&file), &reference]);
    author.does(&["pull", &reference]);
    stranger.log_in("other.example", "YWxpY2U6b3Blbg==");
    stranger.fails(&["pull", &reference]);
    assert!(stranger.installed().is_empty());
    // A helper, as `docker login` sets up where the desktop keeps passwords.
    let helped = Desk::new();
    std::fs::create_dir_all(helped.at(".docker")).expect("make a folder");
    std::fs::write(
        helped.at(".docker/config.json"),
        "{\"credsStore\": \"of-no-desktop\"}",
    )
    .expect("write");
    let told = helped.fails(&["pull", &reference]);
    assert!(told.contains("docker-credential-of-no-desktop"), "{told}");
}
