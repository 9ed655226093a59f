//! Scopes and limits in the tables of `[auth]`.

/// Declares a table that holds terms beside fields of its own.
macro_rules! terms_table {
    ($(#[$about:meta])* $name:ident { $($(#[$note:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$about])*
        #[derive(Clone, Default, PartialEq, serde::Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub(crate) struct $name {
            $($(#[$note])* pub(crate) $field: $type,)*
            models: Option<Vec<String>>,
            routes: Option<Vec<String>>,
            environments: Option<Vec<String>>,
            tools: Option<Vec<String>>,
            server_tools: Option<Vec<String>>,
            requests_per_second: Option<u64>,
            requests_per_minute: Option<u64>,
            requests_per_day: Option<u64>,
            tokens_per_minute: Option<u64>,
            tokens_per_day: Option<u64>,
            max_concurrent: Option<u64>,
            max_tokens: Option<u32>,
            priority: Option<i32>,
        }

        impl $name {
            /// The terms, which are taken out.
            pub(crate) fn terms(&mut self) -> mortise_identity::Terms {
                mortise_identity::Terms {
                    models: self.models.take(),
                    routes: self.routes.take(),
                    environments: self.environments.take(),
                    tools: self.tools.take(),
                    server_tools: self.server_tools.take(),
                    requests_per_second: self.requests_per_second,
                    requests_per_minute: self.requests_per_minute,
                    requests_per_day: self.requests_per_day,
                    tokens_per_minute: self.tokens_per_minute,
                    tokens_per_day: self.tokens_per_day,
                    max_concurrent: self.max_concurrent,
                    max_tokens: self.max_tokens,
                    priority: self.priority,
                }
            }
        }

        impl std::fmt::Debug for $name {
            /// Without the fields: a secret must not come into a log by way of a debug line.
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str(stringify!($name))
            }
        }
    };
}
pub(crate) use terms_table;
