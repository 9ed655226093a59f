//! Challenges of registries (`WWW-Authenticate`): which credentials they want, and where tokens come from.

/// Authentication that a registry asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Challenge {
    /// User name and password.
    Basic,
    /// A token of a token service.
    Bearer {
        /// URL of the token service.
        realm: String,
        /// Name of the registry there.
        service: Option<String>,
        /// Scope that the token is to allow.
        scope: Option<String>,
    },
}

impl Challenge {
    /// The first challenge of a header that is understood.
    pub(crate) fn parse(header: &str) -> Option<Self> {
        let (scheme, rest) = header.trim().split_once(' ').unwrap_or((header.trim(), ""));
        if scheme.eq_ignore_ascii_case("basic") {
            return Some(Self::Basic);
        }
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let (mut realm, mut service, mut scope) = (None, None, None);
        for (name, value) in Parameters(rest) {
            match name.to_ascii_lowercase().as_str() {
                "realm" => realm = Some(value),
                "service" => service = Some(value),
                "scope" => scope = Some(value),
                _ => {}
            }
        }
        Some(Self::Bearer {
            realm: realm?,
            service,
            scope,
        })
    }
}

/// Names and values of `name="value", other=token`; ends where the text is none.
struct Parameters<'a>(&'a str);

impl<'a> Iterator for Parameters<'a> {
    type Item = (&'a str, String);

    fn next(&mut self) -> Option<Self::Item> {
        let text = self.0.trim_start_matches([' ', ',']);
        let (name, rest) = text.split_once('=')?;
        let (value, rest) = match rest.strip_prefix('"') {
            Some(quoted) => {
                let mut value = String::new();
                let mut characters = quoted.char_indices();
                let end = loop {
                    match characters.next()? {
                        (at, '"') => break at + 1,
                        (_, '\\') => value.push(characters.next()?.1),
                        (_, character) => value.push(character),
                    }
                };
                (value, &quoted[end..])
            }
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                (rest[..end].trim().to_owned(), &rest[end..])
            }
        };
        self.0 = rest;
        Some((name.trim(), value))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bearer(realm: &str, service: Option<&str>, scope: Option<&str>) -> Option<Challenge> {
        Some(Challenge::Bearer {
            realm: realm.to_owned(),
            service: service.map(str::to_owned),
            scope: scope.map(str::to_owned),
        })
    }

    #[test]
    fn challenges_of_registries_are_read() {
        let docker = "Bearer realm=\"https://auth.docker.io/token\",service=\"registry.docker.io\",\
                      scope=\"repository:a/b:pull,push\"";
        let expected = bearer(
            "https://auth.docker.io/token",
            Some("registry.docker.io"),
            Some("repository:a/b:pull,push"),
        );
        assert_eq!(Challenge::parse(docker), expected);
        let odd = "bearer realm=https://a.example/t , error=\"x\\\"y\"";
        assert_eq!(
            Challenge::parse(odd),
            bearer("https://a.example/t", None, None)
        );
        assert_eq!(
            Challenge::parse("Basic realm=\"x\""),
            Some(Challenge::Basic)
        );
        assert_eq!(Challenge::parse("basic"), Some(Challenge::Basic));
        for text in [
            "",
            "Bearer",
            "Bearer realm=\"x",
            "Bearer service=\"x\"",
            "Negotiate x",
        ] {
            assert_eq!(Challenge::parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_header_is_read_or_refused(text in "\\PC{0,60}", parameters in "[a-z=\", \\\\]{0,40}") {
            Challenge::parse(&text);
            Challenge::parse(&format!("Bearer {parameters}"));
        }
    }
}
