//! Requests to a server of the test's own: where they go, and where they do not.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mortise_outbound::{Grant, Outbound, OutboundRequest, OutboundResponse, RequestError};

/// A server that gives every connection the same bytes, then does `after`.
struct Server {
    address: SocketAddr,
    /// The head of each request.
    heard: Receiver<String>,
}

fn serve(answer: &'static str, after: fn(TcpStream)) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let (tell, heard) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let tell = tell.clone();
            std::thread::spawn(move || {
                let mut head = String::new();
                let mut reader = BufReader::new(stream.try_clone().expect("a handle"));
                while reader.read_line(&mut head).is_ok_and(|bytes| bytes > 2) {}
                let _ = tell.send(head);
                let _ = stream.write_all(answer.as_bytes());
                after(stream);
            });
        }
    });
    Server { address, heard }
}

fn close(_: TcpStream) {}

/// Keep the connection open and silent until the other side closes it.
fn stay(stream: TcpStream) {
    let mut rest = String::new();
    let _ = BufReader::new(stream).read_line(&mut rest);
}

fn grant(origins: &[String]) -> Grant {
    Grant {
        origins: origins
            .iter()
            .map(|text| text.parse().expect("an origin"))
            .collect(),
        // Long enough for a busy machine; tests that wait for it set their own.
        timeout: Duration::from_secs(60),
        ..Grant::default()
    }
}

fn get(url: String) -> OutboundRequest {
    OutboundRequest {
        method: "GET".to_owned(),
        url,
        ..OutboundRequest::default()
    }
}

/// A client for which every name stands for these addresses; how often it asked for one.
fn named(grant: Grant, addresses: &[SocketAddr]) -> (Outbound, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let (addresses, count) = (addresses.to_vec(), Arc::clone(&asked));
    let client = Outbound::with_resolver(
        grant,
        Arc::new(move |_: &str, _: u16| {
            count.fetch_add(1, Ordering::SeqCst);
            Ok(addresses.clone())
        }),
    );
    (client, asked)
}

async fn ask(client: &Outbound, url: String) -> Result<OutboundResponse, RequestError> {
    client.send(get(url)).await
}

const HELLO: &str = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\nX-Own: yes\r\n\r\nhello";

#[tokio::test]
async fn a_listed_origin_is_asked() {
    let server = serve(HELLO, close);
    let origin = format!("http://{}", server.address);
    let client = Outbound::new(grant(std::slice::from_ref(&origin)));
    let request = OutboundRequest {
        method: "POST".to_owned(),
        url: format!("{origin}/path?q=1#fragment"),
        headers: vec![("X-Mine".to_owned(), "1".to_owned())],
        body: b"content".to_vec(),
        timeout: None,
    };
    let answer = client.send(request).await.expect("an answer");
    assert_eq!(
        (answer.status, answer.body.as_slice()),
        (200, &b"hello"[..])
    );
    assert!(
        answer
            .headers
            .contains(&("x-own".to_owned(), "yes".to_owned()))
    );
    let head = server.heard.recv().expect("a request").to_lowercase();
    assert!(head.starts_with("post /path?q=1 http/1.1\r\n"), "{head}");
    assert!(
        head.contains(&format!("host: {}\r\n", server.address)),
        "{head}"
    );
    assert!(
        head.contains("content-length: 7\r\n") && head.contains("x-mine: 1\r\n"),
        "{head}"
    );
}

#[tokio::test]
async fn i1_an_origin_that_is_not_listed_is_never_asked() {
    let server = serve(HELLO, close);
    let port = server.address.port();
    let listed = format!("http://127.0.0.1:{port}");
    let client = Outbound::new(grant(&[listed]));
    for url in [
        format!("http://127.0.0.2:{port}/"),
        format!("http://localhost:{port}/"),
        format!("https://127.0.0.1:{port}/"),
        format!("http://127.0.0.1:{}/", port ^ 1),
        format!("http://127.0.0.1.evil.example:{port}/"),
        format!("http://127.1:{port}/"),
        format!("http://2130706433:{port}/"),
        format!("http://0x7f.1:{port}/"),
        format!("http://0177.0.0.1:{port}/"),
        format!("http://[::ffff:127.0.0.1]:{port}/"),
    ] {
        let denied = ask(&client, url.clone()).await;
        assert!(
            matches!(denied, Err(RequestError::Denied(_))),
            "{url}: {denied:?}"
        );
    }
    let nowhere = Outbound::new(Grant::default());
    let denied = ask(&nowhere, format!("http://127.0.0.1:{port}/")).await;
    assert!(matches!(denied, Err(RequestError::Denied(_))));
    assert!(server.heard.try_recv().is_err(), "nobody was asked");
}

#[tokio::test]
async fn i1_a_listed_name_must_not_stand_for_an_address_inside() {
    let server = serve(HELLO, close);
    let port = server.address.port();
    let origin = format!("http://good.example:{port}");
    for inside in [
        "127.0.0.1",
        "0.0.0.0",
        "10.0.0.1",
        "100.64.0.1",
        "169.254.169.254",
        "192.168.0.1",
        "224.0.0.1",
        "::1",
        "::ffff:127.0.0.1",
        "fe80::1",
        "fd00::1",
    ] {
        let address = SocketAddr::new(inside.parse().expect("an address"), port);
        let (client, _) = named(grant(std::slice::from_ref(&origin)), &[address]);
        match ask(&client, format!("{origin}/")).await {
            Err(RequestError::Denied(text)) => assert!(text.contains(inside), "{text}"),
            other => panic!("{inside}: {other:?}"),
        }
    }
    assert!(server.heard.try_recv().is_err(), "nobody was asked");
}

#[tokio::test]
async fn i2_one_address_inside_among_others_is_enough_to_refuse() {
    let origin = "http://good.example".to_owned();
    let addresses = ["1.1.1.1:80", "127.0.0.1:80"].map(|text| text.parse().expect("an address"));
    let (client, _) = named(grant(std::slice::from_ref(&origin)), &addresses);
    let denied = ask(&client, origin).await;
    assert!(matches!(denied, Err(RequestError::Denied(_))), "{denied:?}");
}

#[tokio::test]
async fn i2_the_connection_goes_to_the_address_that_was_checked() {
    let server = serve(HELLO, close);
    let origin = format!("http://good.example:{}", server.address.port());
    let mut allowed = grant(std::slice::from_ref(&origin));
    allowed.networks = vec!["127.0.0.0/8".parse().expect("a network")];
    // The name stands for our server once, and for somewhere else ever after.
    let answers = Mutex::new(vec![
        "10.255.255.1:9".parse().expect("an address"),
        server.address,
    ]);
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let client = Outbound::with_resolver(
        allowed,
        Arc::new(move |_: &str, _: u16| {
            count.fetch_add(1, Ordering::SeqCst);
            Ok(answers.lock().expect("lock").pop().into_iter().collect())
        }),
    );
    let answer = ask(&client, format!("{origin}/")).await.expect("an answer");
    assert_eq!(answer.status, 200);
    assert_eq!(asked.load(Ordering::SeqCst), 1, "names are resolved once");
    let head = server.heard.recv().expect("a request").to_lowercase();
    assert!(head.contains("host: good.example"), "{head}");
    let denied = ask(&client, format!("{origin}/")).await;
    assert!(matches!(denied, Err(RequestError::Denied(_))), "{denied:?}");
}

#[tokio::test]
async fn i2_redirects_are_not_followed() {
    let inner = serve(HELLO, close);
    // The port is not known when the answer is written, and need not be: nobody goes there.
    let outer = serve(
        "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1/inner\r\ncontent-length: 0\r\n\r\n",
        close,
    );
    let origin = format!("http://{}", outer.address);
    let client = Outbound::new(grant(std::slice::from_ref(&origin)));
    let answer = ask(&client, origin).await.expect("an answer");
    assert_eq!(answer.status, 302);
    let location = ("location".to_owned(), "http://127.0.0.1/inner".to_owned());
    assert!(answer.headers.contains(&location));
    let denied = ask(&client, format!("http://{}/", inner.address)).await;
    assert!(
        matches!(denied, Err(RequestError::Denied(_))),
        "following is a request of its own"
    );
    assert!(inner.heard.try_recv().is_err());
}

#[tokio::test]
async fn i4_size_and_time_are_bounded() {
    let large = serve(
        "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n0123456789",
        close,
    );
    let claims = serve(
        "HTTP/1.1 200 OK\r\ncontent-length: 9999999999\r\n\r\n0123456789",
        stay,
    );
    for server in [&large, &claims] {
        let origin = format!("http://{}", server.address);
        let mut small = grant(std::slice::from_ref(&origin));
        small.max_response_bytes = 9;
        let answer = ask(&Outbound::new(small), origin).await;
        assert_eq!(answer, Err(RequestError::TooLarge { limit: 9 }));
    }
    let silent = serve("", stay);
    let dripping = serve("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n0", stay);
    for server in [&silent, &dripping] {
        let origin = format!("http://{}", server.address);
        let mut hasty = grant(std::slice::from_ref(&origin));
        hasty.timeout = Duration::from_millis(200);
        let answer = ask(&Outbound::new(hasty), origin.clone()).await;
        assert_eq!(answer, Err(RequestError::Timeout));
        let patient = Outbound::new(grant(std::slice::from_ref(&origin)));
        let mut request = get(origin);
        request.timeout = Some(Duration::from_millis(200));
        assert_eq!(patient.send(request).await, Err(RequestError::Timeout));
    }
}

#[tokio::test]
async fn what_is_not_http_or_not_there_is_told() {
    let garbage = serve("this is no HTTP\r\n\r\n", close);
    let origin = format!("http://{}", garbage.address);
    let answer = ask(&Outbound::new(grant(std::slice::from_ref(&origin))), origin).await;
    assert!(
        matches!(answer, Err(RequestError::Unreachable(_))),
        "{answer:?}"
    );
    // TLS is spoken where the URL says so, to whoever is there.
    let plain = serve(HELLO, close);
    let origin = format!("https://{}", plain.address);
    let answer = ask(&Outbound::new(grant(std::slice::from_ref(&origin))), origin).await;
    assert!(
        matches!(answer, Err(RequestError::Unreachable(_))),
        "{answer:?}"
    );
    let (client, _) = named(grant(&["http://good.example".to_owned()]), &[]);
    let answer = ask(&client, "http://good.example/".to_owned()).await;
    assert!(
        matches!(answer, Err(RequestError::Unreachable(_))),
        "{answer:?}"
    );
}

#[tokio::test]
async fn exchanges_wait_for_each_other_beyond_their_bound() {
    let server = serve(HELLO, close);
    let origin = format!("http://{}", server.address);
    let mut one = grant(std::slice::from_ref(&origin));
    one.at_once = 1;
    let client = Outbound::new(one);
    let both = [ask(&client, origin.clone()), ask(&client, origin)];
    let [first, second] = both;
    let (first, second) = tokio::join!(first, second);
    assert!(first.is_ok() && second.is_ok(), "{first:?} {second:?}");
}
