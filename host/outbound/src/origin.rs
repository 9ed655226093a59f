//! Origin of a URL: scheme, host and port.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ureq::http::Uri;

/// The origin of a URL. Two are equal if browsers would say so: the case of letters does not count,
/// and a port that the scheme implies is the same as none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// Whether the scheme is `https`, and not `http`.
    pub(crate) secure: bool,
    /// In lower case; an IPv6 address without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// A text is no origin, or a URL has none that can be asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` {problem}; write an origin such as https://api.example")]
pub struct OriginError {
    text: String,
    problem: &'static str,
}

impl Origin {
    /// The origin of a URL.
    ///
    /// # Errors
    /// Defect of the URL.
    pub(crate) fn of(url: &Uri) -> Result<Self, &'static str> {
        let secure = match url.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            Some(_) => return Err("has a scheme other than `https` and `http`"),
            None => return Err("is not absolute: it has no scheme"),
        };
        let authority = url.authority().ok_or("has no host")?;
        if authority.as_str().contains('@') {
            return Err("carries a user name");
        }
        let host = authority.host().to_ascii_lowercase();
        let host = match host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
        {
            Some(inner) if inner.parse::<IpAddr>().is_ok() => inner.to_owned(),
            Some(_) => return Err("has a host that is no address"),
            None => host,
        };
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
        if host.is_empty() || host.ends_with('.') || !host.bytes().all(plain) {
            return Err("has a host that is no plain name");
        }
        let port = match authority.as_str().rsplit_once(':') {
            // What stands behind the last colon of a bare IPv6 address is no port.
            Some((_, port)) if !port.ends_with(']') => {
                port.parse().map_err(|_| "has a port that is no port")?
            }
            _ if secure => 443,
            _ => 80,
        };
        Ok(Self { secure, host, port })
    }

    /// The origin of a URL with any path.
    ///
    /// # Errors
    /// When the text is no URL that can be asked.
    pub fn of_url(text: &str) -> Result<Self, OriginError> {
        let wrong = |problem| OriginError {
            text: text.to_owned(),
            problem,
        };
        let url: Uri = text.parse().map_err(|_| wrong("is no URL"))?;
        Self::of(&url).map_err(wrong)
    }

    /// The address, if the host is one.
    pub fn address(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }
}

impl FromStr for Origin {
    type Err = OriginError;

    fn from_str(text: &str) -> Result<Self, OriginError> {
        let wrong = |problem| OriginError {
            text: text.to_owned(),
            problem,
        };
        let url: Uri = text.parse().map_err(|_| wrong("is no URL"))?;
        let origin = Self::of(&url).map_err(wrong)?;
        match url.path_and_query().map(|path| path.as_str()) {
            None | Some("" | "/") => Ok(origin),
            Some(_) => Err(wrong("has a path, and an origin is granted as a whole")),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, implied) = if self.secure {
            ("https", 443)
        } else {
            ("http", 80)
        };
        match self.address() {
            Some(IpAddr::V6(address)) => write!(formatter, "{scheme}://[{address}]")?,
            _ => write!(formatter, "{scheme}://{}", self.host)?,
        }
        match self.port == implied {
            true => Ok(()),
            false => write!(formatter, ":{}", self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_compared_as_browsers_do() {
        let origin = |text: &str| text.parse::<Origin>().expect("an origin");
        assert_eq!(
            origin("https://API.example"),
            origin("https://api.example:443/")
        );
        assert_ne!(origin("https://api.example"), origin("http://api.example"));
        assert_ne!(
            origin("https://api.example"),
            origin("https://api.example:8443")
        );
        assert_eq!(origin("http://[::1]:8080").to_string(), "http://[::1]:8080");
        assert_eq!(origin("HTTPS://a.b:443").to_string(), "https://a.b");
    }

    #[test]
    fn what_is_no_origin_is_told() {
        for (text, part) in [
            ("api.example", "no scheme"),
            ("ftp://api.example", "scheme other"),
            ("https://user@api.example", "user name"),
            ("https://user:pass@api.example", "user name"),
            ("https://api.example/path", "has a path"),
            ("https://api.example?q=1", "has a path"),
            ("https://api.example.", "plain name"),
            ("https://*.example", "plain name"),
            ("https://", "no URL"),
            ("https://a b", "no URL"),
            ("https://a:99999", "port"),
        ] {
            let error = text.parse::<Origin>().expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
