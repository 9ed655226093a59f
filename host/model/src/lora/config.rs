//! `adapter_config.json`, as PEFT writes it.

use regex::{Regex, RegexBuilder};
use serde_json::Value;

use crate::error::ModelError;
use crate::fields::{ObjectFields, brief};
use crate::folder::ModelFolder;
use crate::limits::{ADAPTER_ALPHA_MAX, ADAPTER_PATTERN_BYTES_MAX, ADAPTER_RANK_MAX, LIST_MAX};

/// File with the settings of an adapter.
const FILE: &str = "adapter_config.json";

/// Fields that say how the adapter was made, or what is not its matrices' business.
const WITHOUT_EFFECT: &[&str] = &[
    "auto_mapping",
    "base_model_name_or_path",
    "corda_config",
    "ensure_weight_tying",
    "eva_config",
    "inference_mode",
    "layers_pattern",
    "layers_to_transform",
    "exclude_modules",
    "lora_dropout",
    "lora_ga_config",
    "megatron_core",
    "peft_version",
    "qalora_group_size",
    "revision",
    "runtime_config",
    "task_type",
];
/// Fields that are read.
const READ: &[&str] = &[
    "alpha_pattern",
    "bias",
    "init_lora_weights",
    "lora_alpha",
    "peft_type",
    "r",
    "rank_pattern",
    "target_modules",
    "use_rslora",
];
/// Ways of making the first weights that leave those of the base as they are.
const HARMLESS_INIT: &[&str] = &["gaussian", "eva", "orthogonal", "lora_ga"];

/// The settings of an adapter.
pub(super) struct LoraConfig {
    fields: ObjectFields,
    rank: usize,
    pub(super) alpha: f64,
    ranks: Vec<(Regex, usize)>,
    alphas: Vec<(Regex, f64)>,
    root_of_rank: bool,
    targets: Targets,
}

/// Modules of the base that are adapted.
enum Targets {
    AllLinear,
    Names(Vec<String>),
    Pattern(Regex),
}

impl LoraConfig {
    pub(super) fn read(folder: &ModelFolder) -> Result<Self, ModelError> {
        let fields = ObjectFields::read(folder, FILE)?.ok_or_else(|| folder.missing(FILE))?;
        check_kind(&fields)?;
        let rank = fields.required_count("r", 1..=ADAPTER_RANK_MAX)?;
        let alpha = fields.number("lora_alpha", 0.0..=f64::from(ADAPTER_ALPHA_MAX))?;
        let alpha = alpha.ok_or_else(|| fields.wrong("lora_alpha", "is missing"))?;
        let ranks = patterns(&fields, "rank_pattern", |fields, key| {
            fields.required_count(key, 1..=ADAPTER_RANK_MAX)
        })?;
        let alphas = patterns(&fields, "alpha_pattern", |fields, key| {
            let alpha = fields.number(key, 0.0..=f64::from(ADAPTER_ALPHA_MAX))?;
            alpha.ok_or_else(|| fields.wrong(key, "is missing"))
        })?;
        Ok(Self {
            rank,
            alpha,
            ranks,
            alphas,
            root_of_rank: fields.flag("use_rslora")?.unwrap_or(false),
            targets: Targets::read(&fields)?,
            fields,
        })
    }

    /// The rank of a module's matrices.
    pub(super) fn rank(&self, module: &str) -> usize {
        let own = self.ranks.iter().find(|(keys, _)| keys.is_match(module));
        own.map_or(self.rank, |(_, rank)| *rank)
    }

    /// Factor of a module's product.
    pub(super) fn scale(&self, module: &str) -> f64 {
        let own = self.alphas.iter().find(|(keys, _)| keys.is_match(module));
        let alpha = own.map_or(self.alpha, |(_, alpha)| *alpha);
        let rank = self.rank(module) as f64;
        match self.root_of_rank {
            true => alpha / rank.sqrt(),
            false => alpha / rank,
        }
    }

    /// Check that the settings name exactly the modules that have tensors.
    pub(super) fn check_targets(&self, modules: &[&str]) -> Result<(), ModelError> {
        let wrong = |problem: String| Err(self.fields.wrong("target_modules", problem));
        if let Some(module) = modules.iter().find(|module| !self.targets.name(module)) {
            return wrong(format!(
                "does not name `{}`, for which there are tensors",
                shown(module)
            ));
        }
        let Targets::Names(names) = &self.targets else {
            return Ok(());
        };
        let lacks = |name: &&String| !modules.iter().any(|module| ends_in(module, name));
        if let Some(name) = names.iter().find(lacks) {
            return wrong(format!(
                "names `{}`, for which there are no tensors",
                shown(name)
            ));
        }
        Ok(())
    }
}

impl Targets {
    fn read(fields: &ObjectFields) -> Result<Self, ModelError> {
        const FIELD: &str = "target_modules";
        match fields.get(FIELD) {
            Some(Value::String(text)) if text.eq_ignore_ascii_case("all-linear") => {
                Ok(Self::AllLinear)
            }
            Some(Value::String(text)) => {
                pattern(fields, FIELD, text, format!("^(?:{text})$")).map(Self::Pattern)
            }
            Some(Value::Array(_)) => {
                let list = fields.list(FIELD)?.unwrap_or_default();
                let name = |value: &Value| value.as_str().map(str::to_owned);
                let names: Option<Vec<String>> = list.iter().map(name).collect();
                let names = names.filter(|names| !names.is_empty());
                let names = names.ok_or_else(|| {
                    fields.wrong(FIELD, "is no list of names with at least one name")
                })?;
                Ok(Self::Names(names))
            }
            _ => Err(fields.wrong(FIELD, "is missing; expected a list of names or a pattern")),
        }
    }

    /// True if a module is one of them.
    fn name(&self, module: &str) -> bool {
        match self {
            Self::AllLinear => true,
            Self::Names(names) => names.iter().any(|name| ends_in(module, name)),
            Self::Pattern(pattern) => pattern.is_match(module),
        }
    }
}

/// True if a module has this name, or ends in it.
fn ends_in(module: &str, name: &str) -> bool {
    let before = module.strip_suffix(name);
    before.is_some_and(|before| before.is_empty() || before.ends_with('.'))
}

/// Refuse kinds of adapters that compute something else, by the field that says so.
fn check_kind(fields: &ObjectFields) -> Result<(), ModelError> {
    let kind = fields.text("peft_type")?;
    if kind != Some("LORA") {
        let found = kind.map_or("is missing".to_owned(), |kind| {
            format!("is \"{}\"", shown(kind))
        });
        return Err(fields.wrong("peft_type", format!("{found}; expected \"LORA\"")));
    }
    if let Some(bias) = fields.text("bias")?.filter(|bias| *bias != "none") {
        let problem = format!("is \"{}\"; trained biases are not supported", shown(bias));
        return Err(fields.wrong("bias", problem));
    }
    if let Some(Value::String(init)) = fields.get("init_lora_weights")
        && !HARMLESS_INIT.contains(&init.as_str())
    {
        let problem = format!(
            "is \"{}\", which changes the weights of the base too; convert the adapter to an ordinary one",
            shown(init)
        );
        return Err(fields.wrong("init_lora_weights", problem));
    }
    for name in fields.names() {
        let known = WITHOUT_EFFECT.contains(&name) || READ.contains(&name);
        if known || fields.get(name).is_none_or(is_off) {
            continue;
        }
        let value = fields.get(name).map(brief).unwrap_or_default();
        let problem = format!("is {value}; adapters with it are not supported");
        return Err(fields.wrong(name, problem));
    }
    Ok(())
}

/// True if a value turns nothing on.
fn is_off(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Bool(true) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Values of their own for modules that match a pattern; the first that matches counts.
fn patterns<T>(
    fields: &ObjectFields,
    field: &str,
    read: impl Fn(&ObjectFields, &str) -> Result<T, ModelError>,
) -> Result<Vec<(Regex, T)>, ModelError> {
    let Some(members) = fields.object(field)? else {
        return Ok(Vec::new());
    };
    let count = members.names().count();
    if count > LIST_MAX {
        let problem = format!("has {count} entries; at most {LIST_MAX} are read");
        return Err(fields.wrong(field, problem));
    }
    let entry = |key: &str| {
        // As PEFT has it: the end of a path, from a dot on.
        let keys = pattern(fields, field, key, format!(r"^(?:.*\.)?(?:{key})$"))?;
        Ok((keys, read(&members, key)?))
    };
    members.names().map(entry).collect()
}

/// Compile a pattern. Matching takes time in proportion to the text, whatever the pattern.
fn pattern(
    fields: &ObjectFields,
    field: &str,
    text: &str,
    whole: String,
) -> Result<Regex, ModelError> {
    let refuse = |problem: String| fields.wrong(field, problem);
    if text.len() > ADAPTER_PATTERN_BYTES_MAX {
        return Err(refuse(format!(
            "has a pattern of {} bytes; at most {ADAPTER_PATTERN_BYTES_MAX} are read",
            text.len()
        )));
    }
    let mut builder = RegexBuilder::new(&whole);
    // A pattern that repeats a repetition can be a million times as large as its text.
    builder.size_limit(ADAPTER_PATTERN_BYTES_MAX << 8);
    builder.build().map_err(|_| {
        refuse(format!(
            "has the pattern `{}`, which is none, is too large, or looks ahead or behind; list the modules",
            shown(text)
        ))
    })
}

/// A text of a file as a message shows it.
pub(super) fn shown(text: &str) -> String {
    text.chars().take(120).collect()
}
