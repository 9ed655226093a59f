//! Settings of one load that differ from the configuration. They live until the model is unloaded and
//! never reach the configuration file.

use std::path::PathBuf;

use mortise_engine::KvType;
use serde::{Deserialize, Deserializer};

use crate::adapters::AdapterConfig;
use crate::config::Quantize;
use crate::device_choice::DeviceChoice;

/// A setting that may be left alone, set back to its default, or set. On the wire: absent, `null`, a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Override<T> {
    /// As configured.
    #[default]
    Keep,
    /// The default where nothing is configured.
    Default,
    /// This value.
    Set(T),
}

impl<T> Override<T> {
    /// The setting in force, where `configured` is the configuration's.
    pub fn over(self, configured: Option<T>) -> Option<T> {
        match self {
            Self::Keep => configured,
            Self::Default => None,
            Self::Set(value) => Some(value),
        }
    }
}

impl<T: std::ops::Deref> Override<T> {
    /// Override of the value's referent.
    pub fn as_deref(&self) -> Override<&T::Target> {
        match self {
            Self::Keep => Override::Keep,
            Self::Default => Override::Default,
            Self::Set(value) => Override::Set(value),
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Override<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match Option::deserialize(deserializer)? {
            None => Self::Default,
            Some(value) => Self::Set(value),
        })
    }
}

/// Types of the KV cache, by their names in configuration files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KvTypeName {
    /// 32-bit floats.
    F32,
    /// 16-bit floats.
    F16,
    /// 16-bit floats with the range of 32-bit ones.
    Bf16,
    /// Blocks of 8-bit integers.
    Q8_0,
}

impl KvTypeName {
    /// Every type.
    pub const ALL: [Self; 4] = [Self::F32, Self::F16, Self::Bf16, Self::Q8_0];

    /// Name in configuration files and on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::Q8_0 => "q8_0",
        }
    }
}

impl From<KvTypeName> for KvType {
    fn from(name: KvTypeName) -> Self {
        match name {
            KvTypeName::F32 => Self::F32,
            KvTypeName::F16 => Self::F16,
            KvTypeName::Bf16 => Self::Bf16,
            KvTypeName::Q8_0 => Self::Q8_0,
        }
    }
}

/// An adapter that a load names.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoraOverride {
    /// Name among the adapters of the model.
    pub name: String,
    /// A folder as PEFT writes it, or a GGUF file; that of the configured adapter of this name if it is left out.
    pub path: Option<PathBuf>,
    /// Factor of what it adds; that of the configured adapter, or 1, if it is left out.
    pub scale: Option<f32>,
}

impl LoraOverride {
    /// The adapter, where these are the configured ones; `None` if neither says where its files are.
    pub fn over(&self, configured: &[AdapterConfig]) -> Option<AdapterConfig> {
        let known = configured.iter().find(|lora| lora.name == self.name);
        let path = self.path.as_ref().or(known.map(|known| &known.path));
        // Other files have nothing to do with the scale of the configured ones.
        let scale = known.filter(|known| path == Some(&known.path));
        Some(AdapterConfig {
            name: self.name.clone(),
            path: path?.clone(),
            scale: self.scale.or(scale.map(|known| known.scale)).unwrap_or(1.0),
        })
    }
}

/// Settings of one load.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LoadOverrides {
    /// Tokens of prompt and answer together.
    pub max_context: Override<usize>,
    /// Type of the KV cache.
    pub kv_type: Override<KvTypeName>,
    /// Format that weights are quantised to.
    pub quantize: Override<Quantize>,
    /// Device of the weights.
    pub device: Override<DeviceChoice>,
    /// Engines of the same weights.
    pub replicas: Override<usize>,
    /// Name of the draft model.
    pub draft_model: Override<String>,
    /// Adapters that are loaded with the model.
    pub loras: Override<Vec<LoraOverride>>,
    /// Never evicted, never unloaded for being idle.
    pub pinned: Override<bool>,
}

impl LoadOverrides {
    /// True if nothing is overridden.
    pub fn is_empty(&self) -> bool {
        self.first().is_none()
    }

    /// Settings of the runtime: those that need one of this server's own.
    pub fn of_runtime(&self) -> Self {
        Self {
            pinned: Override::Keep,
            ..self.clone()
        }
    }

    /// Whether a model is pinned, of which the configuration says `configured`.
    pub fn pins(&self, configured: bool) -> bool {
        self.pinned.over(Some(configured)).unwrap_or(false)
    }

    /// Name of the first setting that is overridden.
    pub fn first(&self) -> Option<&'static str> {
        let settings = [
            ("max_context", self.max_context != Override::Keep),
            ("kv_type", self.kv_type != Override::Keep),
            ("quantize", self.quantize != Override::Keep),
            ("device", self.device != Override::Keep),
            ("replicas", self.replicas != Override::Keep),
            ("draft_model", self.draft_model != Override::Keep),
            ("loras", self.loras != Override::Keep),
            ("pinned", self.pinned != Override::Keep),
        ];
        let first = settings.into_iter().find(|(_, overridden)| *overridden);
        first.map(|(name, _)| name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_the_cache_are_read_by_their_names() {
        for kind in KvTypeName::ALL {
            let name = serde_json::Value::from(kind.name());
            assert_eq!(serde_json::from_value::<KvTypeName>(name).ok(), Some(kind));
        }
    }

    #[test]
    fn feature_l3_adapters_of_a_load_have_what_is_configured_where_they_say_nothing() {
        let configured = [AdapterConfig {
            name: "legal".to_owned(),
            path: "loras/legal".into(),
            scale: 0.5,
        }];
        let over = |text: &str| {
            let lora: LoraOverride = serde_json::from_str(text).expect("is read");
            let lora = lora.over(&configured)?;
            Some((lora.path.display().to_string(), lora.scale))
        };
        let found = |path: &str, scale: f32| Some((path.to_owned(), scale));
        assert_eq!(over(r#"{"name": "legal"}"#), found("loras/legal", 0.5));
        let scaled = over(r#"{"name": "legal", "scale": 2}"#);
        assert_eq!(scaled, found("loras/legal", 2.0));
        let moved = over(r#"{"name": "legal", "path": "new"}"#);
        assert_eq!(moved, found("new", 1.0));
        let new = over(r#"{"name": "terse", "path": "t.gguf", "scale": 0.25}"#);
        assert_eq!(new, found("t.gguf", 0.25));
        assert_eq!(over(r#"{"name": "terse"}"#), None);
    }

    #[test]
    fn feature_l3_null_and_absent_differ() {
        let read = |text| serde_json::from_str::<LoadOverrides>(text);
        let absent = read("{}").expect("is read");
        assert!(absent.is_empty());
        assert_eq!(absent.max_context.over(Some(7)), Some(7));
        let null = read(r#"{"max_context": null}"#).expect("is read");
        assert!(!null.is_empty());
        assert_eq!(null.max_context.over(Some(7)), None);
        let set = read(r#"{"max_context": 9, "kv_type": "q8_0"}"#).expect("is read");
        assert_eq!(set.max_context.over(Some(7)), Some(9));
        assert_eq!(set.kv_type, Override::Set(KvTypeName::Q8_0));
        assert_eq!(set.loras, Override::Keep);
        let none = read(r#"{"loras": null}"#).expect("is read");
        assert_eq!(
            (none.loras, none.max_context),
            (Override::Default, Override::Keep)
        );
        assert!(read(r#"{"loras": [{"path": "x"}]}"#).is_err(), "no name");
        assert!(read(r#"{"max_contxt": 9}"#).is_err());
        assert!(read(r#"{"kv_type": "q9"}"#).is_err());
    }
}
