//! Requests over TLS to a server of the test's own: whose word is believed, and whose is not.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use mortise_outbound::{
    AuthoritiesError, Grant, HttpAuthorities, Outbound, OutboundRequest, OutboundResponse,
    RequestError,
};
use rcgen::{BasicConstraints, Certificate, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use time::OffsetDateTime;

/// Validity of a certificate at the present time.
#[derive(Clone, Copy)]
enum Age {
    Valid,
    Expired,
}

/// An authority that lives as long as its test.
struct Authority {
    certificate: Certificate,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new([]).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).expect("a certificate");
        let issuer = Issuer::new(params, key);
        Self {
            certificate,
            issuer,
        }
    }

    fn trusted(&self) -> Option<HttpAuthorities> {
        let text = format!("Our own authority\n{}", self.certificate.pem());
        Some(text.parse().expect("a certificate"))
    }

    /// A server at which the authority vouches for `name`.
    fn serve(&self, name: &str, age: Age) -> Server {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new([name.to_owned()]).expect("a name");
        let year = time::Duration::days(365);
        let now = OffsetDateTime::now_utc();
        params.not_before = now - year * 2;
        params.not_after = match age {
            Age::Valid => now + year,
            Age::Expired => now - year,
        };
        let certificate = params.signed_by(&key, &self.issuer).expect("signed");
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .expect("a certificate and its key");
        serve(Arc::new(config))
    }
}

/// A server that greets whoever speaks TLS with it.
struct Server {
    address: SocketAddr,
    /// The head of each request; empty if the client left in the handshake.
    heard: Receiver<String>,
}

fn serve(config: Arc<ServerConfig>) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let (tell, heard) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else { return };
            let connection = ServerConnection::new(Arc::clone(&config)).expect("a connection");
            let mut stream = StreamOwned::new(connection, stream);
            let mut head = String::new();
            let mut reader = BufReader::new(&mut stream);
            while reader.read_line(&mut head).is_ok_and(|bytes| bytes > 2) {}
            if !head.is_empty() {
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";
                let _ = stream.write_all(answer);
                stream.conn.send_close_notify();
                let _ = stream.flush();
                // Until the other side has read it all and closes.
                let _ = stream.sock.read(&mut [0]);
            }
            let _ = tell.send(head);
        }
    });
    Server { address, heard }
}

/// Ask `origin` for a secret page; its name stands for the server of the test.
async fn ask(
    host: &str,
    server: &Server,
    authorities: Option<HttpAuthorities>,
) -> Result<OutboundResponse, RequestError> {
    let origin = format!("https://{host}:{}", server.address.port());
    let grant = Grant {
        origins: vec![origin.parse().expect("an origin")],
        networks: vec!["127.0.0.0/8".parse().expect("a network")],
        authorities,
        // Long enough for a busy machine.
        timeout: Duration::from_secs(60),
        ..Grant::default()
    };
    let address = server.address;
    let client = Outbound::with_resolver(grant, Arc::new(move |_, _| Ok(vec![address])));
    let request = OutboundRequest {
        method: "GET".to_owned(),
        url: format!("{origin}/page"),
        headers: vec![("authorization".to_owned(), "Bearer secret".to_owned())],
        ..OutboundRequest::default()
    };
    client.send(request).await
}

async fn refused(host: &str, server: &Server, authorities: Option<HttpAuthorities>) -> String {
    let refusal = match ask(host, server, authorities).await {
        Err(RequestError::Unreachable(text)) => text,
        other => panic!("not refused for its certificate: {other:?}"),
    };
    let head = server.heard.recv().expect("a connection");
    assert_eq!(head, "", "nothing of the request may arrive");
    assert!(
        refusal.contains(&format!("the certificate of `https://{host}:")),
        "{refusal}"
    );
    refusal
}

#[tokio::test]
async fn a_server_that_a_listed_authority_vouches_for_is_asked() {
    let authority = Authority::new();
    for host in ["identity.example", "127.0.0.1"] {
        let server = authority.serve(host, Age::Valid);
        let answer = ask(host, &server, authority.trusted()).await;
        let answer = answer.expect("an answer");
        assert_eq!((answer.status, &answer.body[..]), (200, &b"hello"[..]));
        let head = server.heard.recv().expect("a request").to_lowercase();
        assert!(head.starts_with("get /page http/1.1\r\n"), "{head}");
        assert!(head.contains("authorization: bearer secret"), "{head}");
    }
}

#[tokio::test]
async fn an_authority_that_is_not_listed_is_not_believed() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let server = theirs.serve("identity.example", Age::Valid);
    for authorities in [ours.trusted(), None] {
        let refusal = refused("identity.example", &server, authorities).await;
        assert!(
            refusal.contains("no authority that is trusted"),
            "{refusal}"
        );
    }
}

#[tokio::test]
async fn another_servers_certificate_is_not_accepted() {
    let authority = Authority::new();
    let server = authority.serve("other.example", Age::Valid);
    let refusal = refused("identity.example", &server, authority.trusted()).await;
    assert!(
        refusal.contains("another server's") && refusal.contains("other.example"),
        "{refusal}"
    );
}

#[tokio::test]
async fn an_expired_certificate_is_not_accepted() {
    let authority = Authority::new();
    let server = authority.serve("identity.example", Age::Expired);
    let refusal = refused("identity.example", &server, authority.trusted()).await;
    assert!(refusal.contains("has expired"), "{refusal}");
}

#[test]
fn what_are_no_certificates_is_told() {
    let authority = Authority::new();
    let read = |text: &str| text.parse::<HttpAuthorities>();
    let pem = authority.certificate.pem();
    let key = KeyPair::generate().expect("a key").serialize_pem();
    assert_eq!(read(""), Err(AuthoritiesError::Empty));
    assert_eq!(read("our-ca.pem"), Err(AuthoritiesError::Empty));
    assert_eq!(
        read(&format!("{pem}{key}")),
        Err(AuthoritiesError::PrivateKey)
    );
    let cut: String = pem
        .lines()
        .take(3)
        .map(|line| format!("{line}\n"))
        .collect();
    assert!(matches!(read(&cut), Err(AuthoritiesError::NotPem(_))));
    let other = "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n";
    assert!(matches!(
        read(&format!("{pem}{other}")),
        Err(AuthoritiesError::NotACertificate { number: 2, .. })
    ));
    assert_eq!(read(&pem), read(&format!("a comment\n{pem}")));
    assert_ne!(read(&pem), read(&format!("{pem}{pem}")));
}
