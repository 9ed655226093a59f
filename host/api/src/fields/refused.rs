//! Fields that are documented elsewhere and cannot be honoured here.

/// Defines a group of such fields, each with the reason.
macro_rules! refused_fields {
    ($(#[$meta:meta])* $name:ident { $($field:ident: $why:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Default, serde::Deserialize)]
        #[serde(expecting = "an object")]
        struct $name { $($field: Option<serde_json::Value>),+ }

        impl $name {
            /// The fields and the reasons.
            const REASONS: &'static [(&'static str, &'static str)] =
                &[$((stringify!($field), $why)),+];

            /// Refuse those that are given, or note that they are left out, as configured.
            fn refuse(&self, reader: &mut FieldReader) -> Result<(), Problem> {
                $(if self.$field.is_some() {
                    reader.unsupported(&FieldPath::from(stringify!($field)), $why)?;
                })+
                Ok(())
            }
        }
    };
}

pub(crate) use refused_fields;
