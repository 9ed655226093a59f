//! The PROXY protocol, versions 1 and 2: the first bytes with which a proxy tells whose connection it passes on.
//!
//! Only proxies that are trusted are asked for it, and they must send it; what others send is read as HTTP.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use ipnet::IpNet;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::time::timeout;

/// Longest line of version 1, with its end.
const MAX_LINE_BYTES: usize = 107;
/// Longest addresses and further fields of version 2.
pub(crate) const MAX_PROXY_FIELD_BYTES: usize = 2048;

/// Beginning of version 2.
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// Beginning of version 1.
const WORD: &[u8] = b"PROXY ";

/// Proxies that are believed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProxyProtocol {
    /// Networks of the proxies.
    pub trusted: Vec<IpNet>,
}

/// A header that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProxyHeaderError {
    /// The connection begins without a header of the PROXY protocol.
    #[error("a trusted proxy sent no header of the PROXY protocol")]
    Missing,
    /// The header is malformed.
    #[error("the header of the PROXY protocol is wrong: {0}")]
    Malformed(&'static str),
    /// The header is longer than the bound.
    #[error("the header of the PROXY protocol has {0} bytes, and {MAX_PROXY_FIELD_BYTES} are read")]
    TooLong(usize),
}

impl ProxyProtocol {
    /// The client of a connection: `peer` itself, or the one that a trusted proxy names within `limit`.
    ///
    /// # Errors
    /// When a trusted proxy does not send a header that can be read.
    pub(crate) async fn client(
        &self,
        stream: &mut (impl AsyncRead + Unpin),
        peer: SocketAddr,
        limit: Duration,
    ) -> io::Result<SocketAddr> {
        let address = peer.ip().to_canonical();
        if !self
            .trusted
            .iter()
            .any(|network| network.contains(&address))
        {
            return Ok(peer);
        }
        let named = timeout(limit, read(stream)).await;
        let named = named.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
        Ok(named.unwrap_or(peer))
    }
}

/// Read a header, and not a byte more. `None`: the proxy speaks for itself, or does not know the client.
async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<SocketAddr>> {
    let mut beginning = [0; SIGNATURE.len()];
    stream.read_exact(&mut beginning).await?;
    if beginning == SIGNATURE {
        let mut head = [0; 4];
        stream.read_exact(&mut head).await?;
        let [version, family, high, low] = head;
        let length = usize::from(u16::from_be_bytes([high, low]));
        if length > MAX_PROXY_FIELD_BYTES {
            return Err(io::Error::other(ProxyHeaderError::TooLong(length)));
        }
        let mut fields = vec![0; length];
        stream.read_exact(&mut fields).await?;
        return of_version_2(version, family, &fields).map_err(io::Error::other);
    }
    if !beginning.starts_with(WORD) {
        return Err(io::Error::other(ProxyHeaderError::Missing));
    }
    let mut line = beginning.to_vec();
    while !line.ends_with(b"\r\n") {
        if line.len() >= MAX_LINE_BYTES {
            let error = ProxyHeaderError::Malformed("its line has no end");
            return Err(io::Error::other(error));
        }
        line.push(stream.read_u8().await?);
    }
    of_version_1(&line).map_err(io::Error::other)
}

/// `PROXY TCP4 192.0.2.1 192.0.2.2 40000 443`, with its end.
fn of_version_1(line: &[u8]) -> Result<Option<SocketAddr>, ProxyHeaderError> {
    let wrong = ProxyHeaderError::Malformed;
    let line = std::str::from_utf8(line).map_err(|_| wrong("its line is no text"))?;
    let line = line
        .strip_suffix("\r\n")
        .ok_or(wrong("its line has no end"))?;
    let mut words = line.split(' ').skip(1);
    let family = words.next();
    if family == Some("UNKNOWN") {
        return Ok(None);
    }
    let mut address = || words.next()?.parse::<IpAddr>().ok();
    let (source, destination) = (address(), address());
    let (Some(source), Some(destination)) = (source, destination) else {
        return Err(wrong("an address is none"));
    };
    let fits = match family {
        Some("TCP4") => source.is_ipv4() && destination.is_ipv4(),
        Some("TCP6") => source.is_ipv6() && destination.is_ipv6(),
        _ => return Err(wrong("its family is none of TCP4, TCP6 and UNKNOWN")),
    };
    if !fits {
        return Err(wrong("an address is of another family"));
    }
    let mut port = || {
        let digits = words.next()?;
        let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse::<u16>().ok().filter(|_| plain)
    };
    let (Some(port), Some(_), None) = (port(), port(), words.next()) else {
        return Err(wrong("a port is none"));
    };
    Ok(Some(SocketAddr::new(source, port)))
}

/// The fields behind the signature. What follows the addresses is passed over.
fn of_version_2(
    version: u8,
    family: u8,
    fields: &[u8],
) -> Result<Option<SocketAddr>, ProxyHeaderError> {
    let wrong = ProxyHeaderError::Malformed;
    match version {
        // The proxy itself, as when it checks that the server is there.
        0x20 => return Ok(None),
        0x21 => {}
        _ => return Err(wrong("its version or command is unknown")),
    }
    let port = |at: usize| {
        let bytes = fields.get(at..at + 2)?.try_into().ok()?;
        Some(u16::from_be_bytes(bytes))
    };
    let client = match family {
        0x11 => (|| {
            let source: [u8; 4] = fields.get(..4)?.try_into().ok()?;
            let source = IpAddr::V4(Ipv4Addr::from(source));
            fields.get(..12)?;
            Some(SocketAddr::new(source, port(8)?))
        })(),
        0x21 => (|| {
            let source: [u8; 16] = fields.get(..16)?.try_into().ok()?;
            let source = IpAddr::V6(Ipv6Addr::from(source));
            fields.get(..36)?;
            Some(SocketAddr::new(source, port(32)?))
        })(),
        // Unknown, or of sockets that have no address of a client.
        0x00 | 0x31 | 0x32 => return Ok(None),
        _ => return Err(wrong("its family is none of TCP over IPv4 and IPv6")),
    };
    client.map(Some).ok_or(wrong("its addresses are cut off"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Header that is read from bytes, and its length.
    fn of(bytes: &[u8]) -> (io::Result<Option<SocketAddr>>, usize) {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let mut rest = bytes;
        let read = runtime.expect("a runtime").block_on(read(&mut rest));
        (read, bytes.len() - rest.len())
    }

    fn version_2(version: u8, family: u8, fields: &[u8]) -> Vec<u8> {
        let length = u16::try_from(fields.len()).expect("a length");
        let mut bytes = SIGNATURE.to_vec();
        bytes.extend([version, family]);
        bytes.extend(length.to_be_bytes());
        bytes.extend(fields);
        bytes
    }

    fn addresses(source: SocketAddr, destination: SocketAddr) -> Vec<u8> {
        let octets = |ip: IpAddr| match ip {
            IpAddr::V4(ip) => ip.octets().to_vec(),
            IpAddr::V6(ip) => ip.octets().to_vec(),
        };
        let mut fields = octets(source.ip());
        fields.extend(octets(destination.ip()));
        fields.extend(source.port().to_be_bytes());
        fields.extend(destination.port().to_be_bytes());
        fields
    }

    fn client() -> impl Strategy<Value = SocketAddr> {
        let four = any::<(u32, u16)>().prop_map(|(ip, port)| (Ipv4Addr::from(ip), port).into());
        let six = any::<(u128, u16)>().prop_map(|(ip, port)| (Ipv6Addr::from(ip), port).into());
        prop_oneof![four, six]
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = of(&bytes);
            for beginning in [WORD, &SIGNATURE] {
                let (_, taken) = of(&[beginning, &bytes].concat());
                prop_assert!(taken <= beginning.len() + bytes.len());
            }
        }

        #[test]
        fn a_client_is_found_in_both_versions_and_not_a_byte_more_is_taken(
            client in client(),
            further in proptest::collection::vec(any::<u8>(), 0..64),
            behind in proptest::collection::vec(any::<u8>(), 0..64),
        ) {
            let (word, family) = match client {
                SocketAddr::V4(_) => ("TCP4", 0x11),
                SocketAddr::V6(_) => ("TCP6", 0x21),
            };
            let line = format!("PROXY {word} {} {} {} 443\r\n", client.ip(), client.ip(), client.port());
            let fields = [addresses(client, client), further].concat();
            for header in [line.into_bytes(), version_2(0x21, family, &fields)] {
                let (read, taken) = of(&[&header[..], &behind].concat());
                prop_assert_eq!(read.expect("a header"), Some(client));
                prop_assert_eq!(taken, header.len());
                for end in 0..header.len() {
                    prop_assert!(of(&header[..end]).0.is_err(), "cut off at {}", end);
                }
            }
        }
    }

    #[test]
    fn a_proxy_that_speaks_for_itself_names_no_client() {
        for header in [
            b"PROXY UNKNOWN\r\n".to_vec(),
            b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n".to_vec(),
            version_2(0x20, 0x00, b""),
            version_2(0x21, 0x00, b""),
            version_2(0x21, 0x31, &[0; 216]),
        ] {
            assert_eq!(of(&header).0.expect("a header"), None);
        }
    }

    #[test]
    fn what_is_not_as_the_protocol_has_it_is_refused() {
        let long = format!("PROXY TCP4 {}\r\n", "1".repeat(MAX_LINE_BYTES));
        for (header, part) in [
            (b"GET / HTTP/1.1\r\n".to_vec(), "no header"),
            (b"PROXY TCP4 1.2.3.4 ::1 1 2\r\n".to_vec(), "another family"),
            (b"PROXY TCP4 1.2.3.4 1.2.3.4 1 65536\r\n".to_vec(), "port"),
            (b"PROXY TCP4 1.2.3.4 1.2.3.4 +1 2\r\n".to_vec(), "port"),
            (b"PROXY TCP4 1.2.3.4 1.2.3.4 1 2 3\r\n".to_vec(), "port"),
            (b"PROXY TCP5 1.2.3.4 1.2.3.4 1 2\r\n".to_vec(), "family"),
            (long.into_bytes(), "no end"),
            (version_2(0x11, 0x11, &[0; 12]), "version"),
            (version_2(0x21, 0x11, &[0; 11]), "cut off"),
            (version_2(0x21, 0x12, &[0; 12]), "family"),
            (
                version_2(0x21, 0x11, &[0; MAX_PROXY_FIELD_BYTES + 1]),
                "bytes",
            ),
        ] {
            let error = of(&header).0.expect_err("no header").to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
