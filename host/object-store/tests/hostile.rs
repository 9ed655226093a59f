//! A store that lies, stalls and talks without end costs one request a clear error, and nothing is kept of it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use mortise_object_store::{
    BucketConfig, Expected, ObjectStore, ObjectStoreError, StoreCredentials,
};

/// A store that gives each connection the next of these answers, and the last one for ever. It keeps what it was asked.
struct Liar {
    address: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Liar {
    fn start(answers: Vec<Vec<u8>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = format!("http://{}", listener.local_addr().expect("an address"));
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = Arc::clone(&asked);
        thread::spawn(move || {
            for (number, stream) in listener.incoming().flatten().enumerate() {
                let answer = answers.get(number).or(answers.last()).cloned();
                answered(stream, &answer.unwrap_or_default(), &seen);
            }
        });
        Self { address, asked }
    }

    fn one(answer: impl Into<Vec<u8>>) -> Self {
        Self::start(vec![answer.into()])
    }

    fn store(&self) -> ObjectStore {
        let config = BucketConfig {
            endpoint: self.address.clone(),
            bucket: "models".to_owned(),
            region: "us-east-1".to_owned(),
            prefix: "in/here".to_owned(),
            path_style: true,
            credentials: StoreCredentials {
                key_id: "THE-KEY-ID".to_owned(),
                secret: "the-secret".to_owned(),
                token: None,
            },
            authorities: None,
            part_bytes: 4,
            retry_delay: Duration::from_millis(1),
        };
        ObjectStore::new(&config).expect("a client")
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("a list").clone()
    }
}

/// Read a request, keep it, and send an answer until whoever asked has enough of it. A request is kept before it is
/// answered: whoever has the answer finds it.
fn answered(mut stream: TcpStream, answer: &[u8], seen: &Mutex<Vec<String>>) {
    let mut reader = BufReader::new(stream.try_clone().expect("a copy"));
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 || line == "\r\n" {
            break;
        }
        let lower = line.to_ascii_lowercase();
        if let Some(value) = lower.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
        head.push_str(&line);
    }
    let mut body = vec![0; length];
    let _ = reader.read_exact(&mut body);
    seen.lock().expect("a list").push(head);
    if answer.ends_with(b"FOREVER") {
        let begin = &answer[..answer.len() - b"FOREVER".len()];
        let mut sent = stream.write_all(begin);
        while sent.is_ok() {
            sent = stream.write_all(&[b'x'; 4096]);
        }
        return;
    }
    let _ = stream.write_all(answer);
}

fn answer(status: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n"
    );
    (head + body).into_bytes()
}

/// The SHA-256 digest of `hello`.
const HELLO: &str = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";

/// Fetch `hello`, with what came of it before.
fn fetch(liar: &Liar, before: &str) -> (Result<(), ObjectStoreError>, Option<String>) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("file");
    if !before.is_empty() {
        std::fs::write(&path, before).expect("written");
    }
    let expected = Expected {
        bytes: 5,
        sha256: HELLO,
    };
    let fetched = liar.store().fetch("files/x", &path, &expected, &|_| true);
    (fetched, std::fs::read_to_string(&path).ok())
}

fn problem(result: Result<(), ObjectStoreError>) -> String {
    let problem = result.expect_err("it is refused").to_string();
    for secret in ["THE-KEY-ID", "the-secret", "Signature", "X-Amz"] {
        assert!(!problem.contains(secret), "{problem}");
    }
    problem
}

#[test]
fn feature_b16_an_object_counts_only_with_its_length_and_digest() {
    let good = Liar::one(answer("200 OK", "", "hello"));
    assert_eq!(fetch(&good, "").1.as_deref(), Some("hello"));
    for (lie, words) in [
        (
            answer("200 OK", "", "hello and more"),
            "14 bytes are to come",
        ),
        (answer("200 OK", "", "hell"), "4 bytes are to come"),
        (
            b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nFOREVER".to_vec(),
            "more than 5 bytes",
        ),
        (
            b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhel".to_vec(),
            "cannot reach",
        ),
        (b"nonsense\r\n\r\n".to_vec(), "cannot reach"),
        (
            answer("403 x", "", "<Error><Code>AccessDenied</Code></Error>"),
            "403 (AccessDenied)",
        ),
        (
            answer("403 x", "", "<Code>\u{1b}[31m bad</Code>"),
            "403 for",
        ),
        (answer("404 x", "", ""), "has no"),
        (
            b"HTTP/1.1 500 x\r\nconnection: close\r\n\r\nFOREVER".to_vec(),
            "500 for",
        ),
    ] {
        let liar = Liar::one(lie.clone());
        let told = problem(fetch(&liar, "").0);
        assert!(
            told.contains(words),
            "{}: {told}",
            String::from_utf8_lossy(&lie)
        );
    }
    // Another content of the same length is not taken, and not gone on with.
    let (fetched, left) = fetch(&Liar::one(answer("200 OK", "", "hullo")), "");
    assert!(problem(fetched).contains("was expected"));
    assert_eq!(left, None);
}

#[test]
fn feature_b16_what_is_cut_goes_on_where_it_stopped() {
    let cut = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhe".to_vec();
    let rest = answer("206 x", "content-range: bytes 2-4/5\r\n", "llo");
    let liar = Liar::start(vec![cut.clone(), rest]);
    let (fetched, file) = fetch(&liar, "");
    fetched.expect("it came");
    assert_eq!(file.as_deref(), Some("hello"));
    let asked = liar.asked();
    assert!(
        asked[1].to_ascii_lowercase().contains("range: bytes=2-"),
        "{asked:?}"
    );
    // A store that cannot go on begins anew.
    let liar = Liar::start(vec![cut, answer("200 OK", "", "hello")]);
    assert_eq!(fetch(&liar, "").1.as_deref(), Some("hello"));
    // One that goes on elsewhere is not believed.
    let elsewhere = Liar::one(answer("206 x", "content-range: bytes 0-2/5\r\n", "llo"));
    assert!(problem(fetch(&elsewhere, "he").0).contains("elsewhere"));
    // What is there as a whole is not asked for.
    let idle = Liar::one(answer("500 x", "", ""));
    fetch(&idle, "hello").0.expect("it is there");
    assert!(idle.asked().is_empty());
}

#[test]
fn feature_b16_redirects_are_refused_and_failures_tried_again_a_few_times() {
    let other = Liar::one(answer("200 OK", "", "hello"));
    let place = format!("location: {}/models/in/here/files/x\r\n", other.address);
    let liar = Liar::one(answer("307 x", &place, ""));
    assert!(problem(fetch(&liar, "").0).contains("307"));
    assert!(
        other.asked().is_empty(),
        "nobody else sees a signed request"
    );
    let busy = Liar::one(answer("503 x", "", "<Code>SlowDown</Code>"));
    assert!(problem(fetch(&busy, "").0).contains("503 (SlowDown)"));
    assert_eq!(busy.asked().len(), 3);
    let recovers = Liar::start(vec![answer("503 x", "", ""), answer("200 OK", "", "hello")]);
    fetch(&recovers, "").0.expect("it came");
    let stopped = Liar::one(answer("200 OK", "", "hello"));
    let folder = tempfile::tempdir().expect("a folder");
    let (path, expected) = (
        folder.path().join("file"),
        Expected {
            bytes: 5,
            sha256: HELLO,
        },
    );
    let ended = stopped
        .store()
        .fetch("files/x", &path, &expected, &|_| false);
    assert!(
        matches!(ended, Err(ObjectStoreError::Cancelled)),
        "{ended:?}"
    );
}

fn page(contents: &str, more: &str) -> String {
    format!(
        "<?xml version=\"1.0\"?><ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
         <Name>models</Name>{contents}{more}</ListBucketResult>"
    )
}

fn object(key: &str) -> String {
    format!("<Contents><Key>{key}</Key><ETag>\"1\"</ETag><Size>3</Size></Contents>")
}

#[test]
fn feature_b16_lists_that_make_no_sense_are_refused() {
    let good = page(
        &object("in/here/entries/a.json"),
        "<IsTruncated>false</IsTruncated>",
    );
    let listed = Liar::one(answer("200 OK", "", &good))
        .store()
        .list("entries/");
    let names: Vec<String> = listed.expect("a list").into_keys().collect();
    assert_eq!(names, ["entries/a.json"]);
    let truncated = |token: &str| {
        let more = format!(
            "<IsTruncated>true</IsTruncated><NextContinuationToken>{token}</NextContinuationToken>"
        );
        page(&object("in/here/entries/a.json"), &more)
    };
    let pages = Liar::start(vec![
        answer("200 OK", "", &truncated("x")),
        answer("200 OK", "", &good),
    ]);
    pages.store().list("entries/").expect("two pages");
    assert!(pages.asked()[1].contains("continuation-token=x"));
    let deep = "<a>".repeat(100_000);
    let bomb = "<!DOCTYPE l [<!ENTITY a \"aaaaaaaaaa\"><!ENTITY b \"&a;&a;&a;&a;\">]><ListBucketResult>&b;</ListBucketResult>";
    for (lie, words) in [
        (String::new(), "no list"),
        ("{\"Contents\": []}".to_owned(), "no list"),
        ("<html><body>Welcome</body></html>".to_owned(), "no list"),
        (page("<Contents><Key>", ""), "no list"),
        (page(&deep, ""), "no list"),
        (deep, "no list"),
        (bomb.to_owned(), "no list"),
        (page("<Contents><Size>-1</Size></Contents>", ""), "no list"),
        (
            page(&object("elsewhere/entries/a.json"), ""),
            "was not asked for",
        ),
        (
            page(&object("in/here/files/a.json"), ""),
            "was not asked for",
        ),
        (truncated("x"), "in a circle"),
        (
            page(&object("in/here/entries/a"), &" ".repeat(5 << 20)),
            "more than",
        ),
    ] {
        let liar = Liar::one(answer("200 OK", "", &lie));
        let told = problem(liar.store().list("entries/").map(drop));
        let shown: String = lie.chars().take(80).collect();
        assert!(told.contains(words), "{shown}: {told}");
    }
    let bytes = Liar::one(
        [
            &b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"[..],
            &[0xff, 0xfe],
        ]
        .concat(),
    );
    assert!(problem(bytes.store().list("entries/").map(drop)).contains("UTF-8"));
}

#[test]
fn feature_b16_a_refusal_with_a_good_status_is_one_and_parts_are_taken_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("file");
    std::fs::write(&path, "five!").expect("written");
    let xmlns = "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"";
    let begun = format!(
        "<InitiateMultipartUploadResult {xmlns}><UploadId>u1</UploadId></InitiateMultipartUploadResult>"
    );
    let part = || answer("200 OK", "etag: \"p\"\r\n", "");
    let refused = "<Error><Code>InternalError</Code></Error>";
    let done = format!(
        "<CompleteMultipartUploadResult {xmlns}><ETag>\"e\"</ETag></CompleteMultipartUploadResult>"
    );
    let whole = |last: &str| {
        vec![
            answer("200 OK", "", &begun),
            part(),
            part(),
            answer("200 OK", "", last),
            answer("204 x", "", ""),
        ]
    };
    let good = Liar::start(whole(&done));
    good.store()
        .put("files/x", &path, &|_| true)
        .expect("it was taken");
    assert_eq!(good.asked().len(), 4);
    let liar = Liar::start(whole(refused));
    assert!(problem(liar.store().put("files/x", &path, &|_| true)).contains("does not say that"));
    let last = liar.asked().pop().expect("a request");
    assert!(
        last.starts_with("DELETE ") && last.contains("uploadId=u1"),
        "{last}"
    );
    // A store that does not name parts, or the upload.
    for answers in [
        vec![answer("200 OK", "", &begun), answer("200 OK", "", "")],
        vec![answer("200 OK", "", "<x/>")],
    ] {
        problem(
            Liar::start(answers)
                .store()
                .put("files/x", &path, &|_| true),
        );
    }
    // A small object that must be new.
    let taken = Liar::one(answer("412 x", "", ""));
    let written = taken.store().write("entries/a.json", b"{}", true);
    assert!(
        matches!(written, Err(ObjectStoreError::Exists { .. })),
        "{written:?}"
    );
    assert!(
        taken.asked()[0]
            .to_ascii_lowercase()
            .contains("if-none-match: *")
    );
    let large = Liar::one(answer("200 OK", "", &"x".repeat(100)));
    assert!(problem(large.store().read("entries/a.json", 99).map(drop)).contains("more than 99"));
}
