//! Kinds of plugins, and the interfaces that each may import.

use std::fmt;

/// The WIT package that plugins are written against.
pub(crate) const PACKAGE: &str = "mortise:plugin";

/// Interfaces of WASI 0.2 that a plugin may import, since the standard library does.
const TOLERATED: &[(&str, &[&str])] = &[
    (
        "wasi:cli",
        &[
            "environment",
            "exit",
            "stdin",
            "stdout",
            "stderr",
            "terminal-input",
            "terminal-output",
            "terminal-stdin",
            "terminal-stdout",
            "terminal-stderr",
        ],
    ),
    ("wasi:io", &["error", "poll", "streams"]),
    ("wasi:clocks", &["monotonic-clock", "wall-clock"]),
    ("wasi:random", &["random", "insecure", "insecure-seed"]),
    ("wasi:filesystem", &["types", "preopens"]),
];

/// The interface that `mortise plugin compose` gives to an inner plugin in place of `settings`.
pub(crate) const INNER_SETTINGS: &str = "inner-settings";

/// A version of the contract, the WIT package, that this host speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ContractVersion {
    V0_1,
    V0_2,
    V0_3,
}

impl ContractVersion {
    const ALL: [ContractVersion; 3] = [
        ContractVersion::V0_1,
        ContractVersion::V0_2,
        ContractVersion::V0_3,
    ];

    /// Major and minor number.
    fn numbers(self) -> (u64, u64) {
        match self {
            ContractVersion::V0_1 => (0, 1),
            ContractVersion::V0_2 => (0, 2),
            ContractVersion::V0_3 => (0, 3),
        }
    }

    /// Major and minor number as text, such as `0.2`.
    pub(crate) fn minor(self) -> String {
        let (major, minor) = self.numbers();
        format!("{major}.{minor}")
    }
}

/// Kind of a plugin: the name of an exported interface. A component may export several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Renders prompts.
    ChatTemplate,
    /// Parses answers.
    OutputParser,
    /// Constrains generation.
    Grammar,
    /// Decides on requests.
    Policy,
    /// Offers tools that the server runs.
    Tool,
    /// Looks at what is asked and answered.
    Guardrail,
    /// Divides documents, rewrites queries and chooses passages.
    Retriever,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 7] = [
        Kind::ChatTemplate,
        Kind::OutputParser,
        Kind::Grammar,
        Kind::Policy,
        Kind::Tool,
        Kind::Guardrail,
        Kind::Retriever,
    ];

    /// The name of the interface, such as `chat-template`.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::ChatTemplate => "chat-template",
            Kind::OutputParser => "output-parser",
            Kind::Grammar => "grammar",
            Kind::Policy => "policy",
            Kind::Tool => "tool",
            Kind::Guardrail => "guardrail",
            Kind::Retriever => "retriever",
        }
    }

    /// The kind of an interface name.
    pub(crate) fn from_interface(interface: &str) -> Option<Kind> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.as_str() == interface)
    }

    /// Interfaces of our package that a component of this kind may import: those of its world, and what a plugin in
    /// another one has in place of `settings`.
    pub(crate) fn grants(self) -> &'static [&'static str] {
        match self {
            Kind::ChatTemplate | Kind::OutputParser => {
                &["types", "host", "settings", INNER_SETTINGS, "model"]
            }
            Kind::Grammar => &[
                "types",
                "host",
                "settings",
                INNER_SETTINGS,
                "vocabulary",
                "mask-sink",
            ],
            Kind::Policy => &[
                "types",
                "host",
                "settings",
                INNER_SETTINGS,
                "clock",
                "ledger",
                "secrets",
                "outbound-http",
            ],
            Kind::Tool | Kind::Guardrail | Kind::Retriever => &[
                "types",
                "host",
                "settings",
                INNER_SETTINGS,
                "clock",
                "outbound-http",
            ],
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// The name of an import or export, such as `mortise:plugin/policy@0.1.0`, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InterfaceName<'a> {
    /// `mortise:plugin`
    pub(crate) package: &'a str,
    /// `policy`
    pub(crate) interface: &'a str,
    /// `0.1.0`, or empty.
    pub(crate) version: &'a str,
}

impl<'a> InterfaceName<'a> {
    pub(crate) fn parse(name: &'a str) -> Option<Self> {
        let (package, rest) = name.split_once('/')?;
        let (interface, version) = rest.split_once('@').unwrap_or((rest, ""));
        Some(Self {
            package,
            interface,
            version,
        })
    }

    /// Whether this names an interface of ours, of any version.
    pub(crate) fn is_ours(&self) -> bool {
        self.package == PACKAGE
    }

    /// Whether a plugin may import this interface of WASI, although nothing is granted by it.
    pub(crate) fn is_tolerated(&self) -> bool {
        let mut packages = TOLERATED.iter();
        let package = packages.find(|(package, _)| *package == self.package);
        self.version.starts_with("0.2.")
            && package.is_some_and(|(_, interfaces)| interfaces.contains(&self.interface))
    }

    /// The version of the contract that it belongs to, if this host speaks it.
    pub(crate) fn contract(&self) -> Option<ContractVersion> {
        let mut parts = self.version.split('.').map(str::parse::<u64>);
        let numbers = match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(Ok(major)), Some(Ok(minor)), Some(Ok(_)), None) => (major, minor),
            _ => return None,
        };
        ContractVersion::ALL
            .into_iter()
            .find(|contract| contract.numbers() == numbers)
    }
}

/// The versions that this host speaks, as told to people: `0.1.x, 0.2.x, 0.3.x`.
pub(crate) fn supported_versions() -> String {
    let names = ContractVersion::ALL.map(|contract| format!("{}.x", contract.minor()));
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_taken_apart() {
        let name = InterfaceName::parse("mortise:plugin/mask-sink@0.1.7").unwrap();
        assert_eq!(name.interface, "mask-sink");
        assert!(name.is_ours());
        assert_eq!(name.contract(), Some(ContractVersion::V0_1));
        let name = InterfaceName::parse("mortise:plugin/policy@0.2.0").unwrap();
        assert_eq!(name.contract(), Some(ContractVersion::V0_2));
        let name = InterfaceName::parse("mortise:plugin/policy@0.3.0").unwrap();
        assert_eq!(name.contract(), Some(ContractVersion::V0_3));
    }

    #[test]
    fn other_versions_are_not_supported() {
        for version in [
            "0.4.0", "0.0.2", "1.1.0", "0.10.0", "0.20.0", "0.1", "0.1.0.0", "", "0.1.x", "x.1.0",
        ] {
            let text = format!("mortise:plugin/policy@{version}");
            let name = InterfaceName::parse(&text).unwrap();
            assert_eq!(name.contract(), None, "{version}");
        }
    }

    #[test]
    fn only_what_the_standard_library_imports_is_tolerated() {
        let tolerated = |name| InterfaceName::parse(name).is_some_and(|name| name.is_tolerated());
        assert!(tolerated("wasi:cli/stderr@0.2.6"));
        assert!(tolerated("wasi:filesystem/types@0.2.0"));
        for refused in [
            "wasi:sockets/tcp@0.2.6",
            "wasi:http/outgoing-handler@0.2.6",
            "wasi:clocks/timezone@0.2.6",
            "wasi:cli/run@0.2.6",
            "wasi:cli/stderr@0.3.0",
            "wasi:keyvalue/store@0.2.0",
            "evil:cli/stderr@0.2.6",
        ] {
            assert!(!tolerated(refused), "{refused}");
        }
    }

    #[test]
    fn a_kind_may_import_its_own_world_only() {
        for kind in Kind::ALL {
            let policy = kind == Kind::Policy;
            let grammar = kind == Kind::Grammar;
            for name in ["ledger", "secrets"] {
                assert_eq!(kind.grants().contains(&name), policy, "{kind} {name}");
            }
            for name in ["clock", "outbound-http"] {
                let outward =
                    policy || matches!(kind, Kind::Tool | Kind::Guardrail | Kind::Retriever);
                assert_eq!(kind.grants().contains(&name), outward, "{kind} {name}");
            }
            for name in ["vocabulary", "mask-sink"] {
                assert_eq!(kind.grants().contains(&name), grammar, "{kind} {name}");
            }
        }
    }
}
