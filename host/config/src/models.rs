//! The `[[models]]` tables.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use mortise_hub::ModelReference;
use mortise_model::{EmbedderOptions, PROMPT_BYTES_MAX, PROMPTS_MAX, Pooling};
use mortise_models::limits::MAX_ADAPTERS;
use mortise_models::{
    AdapterConfig, DEMO_MODEL, DefinitionOrigin, ModelConfig, ModelLifecycle, RankConfig,
    RequestDefaults, Script, ScriptKind, ScriptLine, USUAL_INSTRUCTION, UpstreamConfig,
    check_adapter_name,
};
use time::Date;
use time::macros::format_description;
use toml::{Table, Value};

use super::child::RawChild;
use super::lifecycle::seconds;
use super::model_settings::{RawDefaults, RawModelEngine};
use super::raw::{
    RawBackend, RawLora, RawModel, RawPooling, RawRerank, RawRerankForm, RawScript, RawScriptKind,
};
use super::upstream::{RawApi, RawCapability, RawRender, RawUpstream};
use super::{ConfigError, Overrides, invalid, within};

/// Most engines of one model.
const REPLICAS_MAX: usize = 64;

pub(super) fn check_models(
    raw: Vec<RawModel>,
    base: &Path,
    overrides: &Overrides,
    discovers: bool,
) -> Result<Vec<ModelConfig>, ConfigError> {
    let named = match (&overrides.model, &overrides.hf) {
        (None, None) => None,
        (path, reference) => Some(RawModel {
            path: path.clone(),
            hf: reference.as_ref().map(ToString::to_string),
            ..RawModel::default()
        }),
    };
    let mut models = match named {
        Some(named) => vec![check_model(0, named, Path::new(""))?],
        None if overrides.upstream.is_some() || discovers && raw.is_empty() => Vec::new(),
        None if raw.is_empty() => vec![check_model(0, RawModel::default(), base)?],
        None => raw
            .into_iter()
            .enumerate()
            .map(|(index, model)| check_model(index, model, base))
            .collect::<Result<_, _>>()?,
    };
    if let Some((name, aliases)) = overrides.served_model_name.split_first() {
        let [model] = models.as_mut_slice() else {
            return Err(invalid(
                "--served-model-name",
                format!("it names one model and {} are configured", models.len()),
            ));
        };
        model.name.clone_from(name);
        model.aliases = aliases.to_vec();
    }
    Ok(models)
}

/// Instructions that this server lays before the texts of a model which makes embeddings elsewhere.
#[derive(Default)]
struct PromptsElsewhere {
    prompts: BTreeMap<String, String>,
    default_prompt: Option<String>,
}

impl PromptsElsewhere {
    /// Instructions of a model. What is left of them in `raw` is refused there.
    fn take(
        index: usize,
        raw: &mut RawModel,
        capability: RawCapability,
        api: RawApi,
    ) -> Result<Self, ConfigError> {
        if capability != RawCapability::Embed {
            return Ok(Self::default());
        }
        let key = |name: &str| format!("models[{index}].{name}");
        let given = [
            ("prompts", !raw.prompts.is_empty()),
            ("default_prompt", raw.default_prompt.is_some()),
        ];
        if let Some((name, _)) = given.iter().find(|(_, given)| *given)
            && api == RawApi::Mortise
        {
            let problem = "the mortise there has the instructions of the model, and is told which to use; set them there";
            return Err(invalid(&key(name), problem));
        }
        check_prompts(&key, &raw.prompts)?;
        Ok(Self {
            prompts: std::mem::take(&mut raw.prompts),
            default_prompt: raw.default_prompt.take(),
        })
    }
}

/// Entries that are right and may mean something else than what they say.
pub(super) fn doubtful(raw: &[RawModel], overrides: &Overrides) -> Vec<String> {
    if overrides.name_models() {
        let told = "the command line names the models: `[[models]]` of the files are not served";
        let told = (!raw.is_empty()).then(|| told.to_owned());
        return told.into_iter().collect();
    }
    let demo = raw.iter().enumerate().filter(|(_, model)| {
        let elsewhere = model.upstream.is_some() || model.child.is_some();
        let files = model.path.is_some() || model.hf.is_some();
        let named = model.name.as_ref().is_some_and(|name| name != DEMO_MODEL);
        let asked = model.name.as_deref() == Some(DEMO_MODEL);
        let meant = model.backend == RawBackend::Scripted || asked || !named && raw.len() == 1;
        !elsewhere && !files && !meant
    });
    let told = demo.map(|(index, model)| {
        let name = model.name.as_deref().unwrap_or(DEMO_MODEL);
        format!(
            "`models[{index}]` (`{name}`) has neither `path`, `hf`, `upstream` nor `child`: it is the embedded demo model"
        )
    });
    told.collect()
}

/// The name of an entry of `[[models]]`, or that which it gets by default.
pub(super) fn name_in_file(entry: &Table, base: &Path) -> Option<String> {
    let text = |key: &str| entry.get(key).and_then(Value::as_str);
    match (text("name"), text("path"), text("hf")) {
        (Some(name), _, _) => Some(name.to_owned()),
        (None, Some(path), _) => Some(name_of(&base.join(path))),
        (None, None, Some(reference)) => {
            let reference: ModelReference = reference.parse().ok()?;
            Some(reference.name().to_owned())
        }
        (None, None, None) => Some(DEMO_MODEL.to_owned()),
    }
}

/// Refuse keys of models that run in this process.
fn refuse_engine_keys(index: usize, raw: &RawModel, model: &str) -> Result<(), ConfigError> {
    let given = [
        ("quantize", raw.quantize.is_some()),
        ("draft_model", raw.draft_model.is_some()),
        ("loras", !raw.loras.is_empty()),
        ("pooling", raw.pooling.is_some()),
        ("normalize", raw.normalize.is_some()),
        ("prompts", !raw.prompts.is_empty()),
        ("default_prompt", raw.default_prompt.is_some()),
        ("rerank", raw.rerank.is_some()),
        ("backend", raw.backend != RawBackend::Engine),
        ("script", raw.script.is_some()),
        ("engine", raw.engine != RawModelEngine::default()),
        ("replicas", raw.replicas.is_some()),
        ("replica_max", raw.replica_max.is_some()),
    ];
    match given.iter().find(|(_, given)| *given) {
        None => Ok(()),
        Some((name, _)) => Err(invalid(
            &format!("models[{index}].{name}"),
            format!("{model} runs there and has none; leave it out"),
        )),
    }
}

/// A model that a process of this server answers for. It is started when it is needed, unless the file says
/// otherwise.
fn check_child_model(
    index: usize,
    mut raw: RawModel,
    child: RawChild,
    base: &Path,
) -> Result<ModelConfig, ConfigError> {
    let key = |name: &str| format!("models[{index}].{name}");
    let instructions = PromptsElsewhere::take(index, &mut raw, child.capability, child.api)?;
    refuse_engine_keys(index, &raw, "a model of a `child`")?;
    let lifecycle = ModelLifecycle {
        enabled: raw.enabled.unwrap_or(false),
        load_on_demand: raw.load_on_demand.or(Some(true)),
        ..check_lifecycle(index, &raw)?
    };
    let name = raw.name.take().ok_or_else(|| {
        let problem = "a model of a `child` needs a name of its own";
        invalid(&key("name"), problem)
    })?;
    let hf = raw.hf.as_deref().map(str::parse).transpose();
    let hf: Option<ModelReference> = hf.map_err(|error| invalid(&key("hf"), format!("{error}")))?;
    if raw.path.is_some() && hf.is_some() {
        let problem = "a model has a `path` or an `hf`, not both";
        return Err(invalid(&key("hf"), problem));
    }
    if child.render == RawRender::Here {
        if raw.path.is_none() && hf.is_none() {
            let problem = "the tokenizer and the chat template are read from it, since `child.render` is \"here\"";
            return Err(invalid(&key("path"), problem));
        }
        if child.thinking.is_some() {
            let problem =
                "the chat template here decides, since `render` is \"here\"; leave it out";
            return Err(invalid(&key("child.thinking"), problem));
        }
    }
    let defaults = defaults_elsewhere(index, raw.defaults, child.render)?;
    let child = child.check(&|name| key(&format!("child.{name}")), &name, base)?;
    Ok(ModelConfig {
        name,
        defaults,
        sha256: check_pin(index, raw.sha256, raw.path.is_some())?,
        aliases: raw.aliases,
        path: raw.path.map(|path| base.join(path)),
        hf,
        child: Some(child),
        prompts: instructions.prompts,
        default_prompt: instructions.default_prompt,
        lifecycle,
        ..ModelConfig::of_path(None)
    })
}

/// A model that other servers answer for, which has nothing else.
fn check_remote_model(
    index: usize,
    mut raw: RawModel,
    upstream: RawUpstream,
    base: &Path,
) -> Result<ModelConfig, ConfigError> {
    let lifecycle = check_lifecycle(index, &raw)?;
    let key = |name: &str| format!("models[{index}].{name}");
    let name = raw.name.take().ok_or_else(|| {
        let problem = "a model of an `upstream` needs a name of its own";
        invalid(&key("name"), problem)
    })?;
    let here = upstream.render == RawRender::Here;
    if here && raw.path.is_none() {
        let problem = "the tokenizer and the chat template are read from it, since `upstream.render` is \"here\"";
        return Err(invalid(&key("path"), problem));
    }
    if here && upstream.thinking.is_some() {
        let problem = "the chat template here decides, since `render` is \"here\"; leave it out";
        return Err(invalid(&key("upstream.thinking"), problem));
    }
    let given = [
        ("path", raw.path.is_some() && !here),
        ("hf", raw.hf.is_some()),
        ("sha256", raw.sha256.is_some()),
        ("child", raw.child.is_some()),
    ];
    if let Some(given) = given
        .iter()
        .find(|(_, given)| *given)
        .map(|(name, _)| *name)
    {
        let problem = "a model of an `upstream` runs there and has none; leave it out";
        return Err(invalid(&key(given), problem));
    }
    let instructions = PromptsElsewhere::take(index, &mut raw, upstream.capability, upstream.api)?;
    refuse_engine_keys(index, &raw, "a model of an `upstream`")?;
    let defaults = defaults_elsewhere(index, raw.defaults, upstream.render)?;
    let inside = |name: &str| key(&format!("upstream.{name}"));
    let upstream = upstream.check(&inside, &inside("urls"), &name, base)?;
    Ok(ModelConfig {
        name,
        aliases: raw.aliases,
        upstream: Some(upstream),
        prompts: instructions.prompts,
        default_prompt: instructions.default_prompt,
        defaults,
        lifecycle,
        ..ModelConfig::of_path(raw.path.map(|path| base.join(path)))
    })
}

/// Say whether tenants leave each other places of models that other servers and processes answer for.
pub(super) fn reserve_places(
    models: &mut [ModelConfig],
    upstream: Option<&mut UpstreamConfig>,
    reserved: bool,
) {
    let upstreams = models.iter_mut().flat_map(|model| {
        let child = model.child.as_mut().map(|child| &mut child.upstream);
        model.upstream.as_mut().into_iter().chain(child)
    });
    for upstream in upstreams.chain(upstream) {
        upstream.reserve_places = reserved;
    }
}

pub(super) fn check_model(
    index: usize,
    mut raw: RawModel,
    base: &Path,
) -> Result<ModelConfig, ConfigError> {
    if let Some(upstream) = raw.upstream.take() {
        return check_remote_model(index, raw, upstream, base);
    }
    if let Some(child) = raw.child.take() {
        return check_child_model(index, raw, child, base);
    }
    let lifecycle = check_lifecycle(index, &raw)?;
    if raw.backend == RawBackend::Scripted {
        refuse_weight_keys(index, &raw)?;
    }
    let path = raw.path.map(|path| base.join(path));
    let key = |name: &str| format!("models[{index}].{name}");
    let hf = raw.hf.as_deref().map(str::parse).transpose();
    let hf: Option<ModelReference> = hf.map_err(|error| invalid(&key("hf"), format!("{error}")))?;
    let folder = match (&path, &hf) {
        (None, None) => DEMO_MODEL.to_owned(),
        (None, Some(reference)) => reference.name().to_owned(),
        (Some(_), Some(_)) => {
            let problem = "a model has a `path` or an `hf`, not both";
            return Err(invalid(&key("hf"), problem));
        }
        (Some(path), None) => name_of(path),
    };
    let files = match (&path, &hf) {
        (None, None) => None,
        (Some(_), _) => Some("path"),
        (None, Some(_)) => Some("hf"),
    };
    let script = script_of(&key, (raw.backend, raw.script), files, &raw.defaults)?;
    let sha256 = check_pin(index, raw.sha256, path.is_some() || hf.is_some())?;
    let loras = check_loras(&key, raw.loras, base)?;
    let embedding = EmbedderOptions {
        pooling: raw.pooling.map(pooling),
        normalised: raw.normalize,
    };
    if script.is_some() && embedding != EmbedderOptions::default() {
        let problem = "a scripted model makes no embeddings";
        return Err(invalid(&key("pooling"), problem));
    }
    check_prompts(&key, &raw.prompts)?;
    let inside = |table: &str, name: &str| key(&format!("{table}.{name}"));
    Ok(ModelConfig {
        engine: raw.engine.check(&|name| inside("engine", name))?,
        defaults: raw.defaults.check(&|name| inside("defaults", name))?,
        name: raw.name.unwrap_or(folder),
        origin: DefinitionOrigin::Configured,
        aliases: raw.aliases,
        path,
        hf,
        sha256,
        script,
        quantize: raw.quantize,
        loras,
        embedding,
        prompts: raw.prompts,
        default_prompt: raw.default_prompt,
        rank: rank(&key, raw.rerank)?,
        lifecycle,
        ..ModelConfig::of_path(None)
    })
}

/// The script that speaks instead of a model's weights; `files` is the key that names its files.
fn script_of(
    key: &dyn Fn(&str) -> String,
    raw: (RawBackend, Option<RawScript>),
    files: Option<&str>,
    defaults: &RawDefaults,
) -> Result<Option<Script>, ConfigError> {
    let script = match raw {
        (RawBackend::Engine, None) => return Ok(None),
        (RawBackend::Scripted, script) => check_script(script.unwrap_or_default()),
        (RawBackend::Engine, Some(_)) => {
            return Err(invalid(&key("script"), "it needs `backend = \"scripted\"`"));
        }
    };
    if script.kind == ScriptKind::Conversation {
        if let Some(named) = files {
            let problem = "a script that takes conversations has no files; leave it out";
            return Err(invalid(&key(named), problem));
        }
        if *defaults != RawDefaults::default() {
            let problem = "a script that takes conversations draws no tokens; leave it out";
            return Err(invalid(&key("defaults"), problem));
        }
    }
    Ok(Some(script))
}

/// The digest that the files of a model must have.
fn check_pin(
    index: usize,
    pin: Option<String>,
    has_files: bool,
) -> Result<Option<String>, ConfigError> {
    let wrong = |problem: &str| Err(invalid(&format!("models[{index}].sha256"), problem));
    let Some(pin) = pin else {
        return Ok(None);
    };
    if !has_files {
        return wrong("there are no files here whose digest it could be; leave it out");
    }
    match pin.len() == 64 && pin.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        true => Ok(Some(pin.to_ascii_lowercase())),
        false => wrong("a SHA-256 digest has 64 hexadecimal digits"),
    }
}

/// Defaults of a model that another server answers for: it has those of sampling itself, and arguments of the template
/// count where conversations are rendered here.
fn defaults_elsewhere(
    index: usize,
    raw: RawDefaults,
    render: RawRender,
) -> Result<RequestDefaults, ConfigError> {
    let key = |name: &str| format!("models[{index}].defaults{name}");
    if raw.samples() || render != RawRender::Here && raw != RawDefaults::default() {
        let problem = "the server that answers for the model has its own; only `template_arguments` count here, and only \
                       with `render = \"here\"`";
        return Err(invalid(&key(""), problem));
    }
    raw.check(&|name| key(&format!(".{name}")))
}

/// Refuse keys of models with weights.
fn refuse_weight_keys(index: usize, raw: &RawModel) -> Result<(), ConfigError> {
    let given = [
        ("quantize", raw.quantize.is_some()),
        ("loras", !raw.loras.is_empty()),
        ("prompts", !raw.prompts.is_empty()),
        ("default_prompt", raw.default_prompt.is_some()),
        ("rerank", raw.rerank.is_some()),
        ("engine", raw.engine != RawModelEngine::default()),
    ];
    match given.iter().find(|(_, given)| *given) {
        None => Ok(()),
        Some((name, _)) => Err(invalid(
            &format!("models[{index}].{name}"),
            "a scripted model has no weights",
        )),
    }
}

/// Refuse instructions that no model was trained with.
fn check_prompts(
    key: &dyn Fn(&str) -> String,
    prompts: &BTreeMap<String, String>,
) -> Result<(), ConfigError> {
    within(&key("prompts"), prompts.len().max(1), PROMPTS_MAX)?;
    for (name, text) in prompts {
        within(
            &key(&format!("prompts.{name}")),
            text.len().max(1),
            PROMPT_BYTES_MAX,
        )?;
    }
    Ok(())
}

/// The task of a decoder that scores pairs of texts.
fn rank(
    key: &dyn Fn(&str) -> String,
    raw: Option<RawRerank>,
) -> Result<Option<RankConfig>, ConfigError> {
    let Some(RawRerank {
        form: RawRerankForm::YesNo,
        instruction,
    }) = raw
    else {
        return Ok(None);
    };
    let instruction = instruction.unwrap_or_else(|| USUAL_INSTRUCTION.to_owned());
    within(
        &key("rerank.instruction"),
        instruction.len(),
        PROMPT_BYTES_MAX,
    )?;
    Ok(Some(RankConfig { instruction }))
}

fn pooling(raw: RawPooling) -> Pooling {
    match raw {
        RawPooling::Mean => Pooling::Mean,
        RawPooling::Cls => Pooling::First,
        RawPooling::Last => Pooling::Last,
    }
}

/// The adapters of a model.
fn check_loras(
    key: &dyn Fn(&str) -> String,
    raw: Vec<RawLora>,
    base: &Path,
) -> Result<Vec<AdapterConfig>, ConfigError> {
    within(&key("loras"), raw.len().max(1), MAX_ADAPTERS)?;
    let mut loras: Vec<AdapterConfig> = Vec::new();
    for (number, lora) in raw.into_iter().enumerate() {
        let key = |name: &str| key(&format!("loras[{number}].{name}"));
        check_adapter_name(&lora.name).map_err(|problem| invalid(&key("name"), problem))?;
        if loras.iter().any(|known| known.name == lora.name) {
            let problem = format!("another adapter of the model is called `{}`", lora.name);
            return Err(invalid(&key("name"), problem));
        }
        loras.push(AdapterConfig {
            name: lora.name,
            path: base.join(lora.path),
            scale: lora.scale,
        });
    }
    Ok(loras)
}

/// The life cycle of the model at `index`.
fn check_lifecycle(index: usize, raw: &RawModel) -> Result<ModelLifecycle, ConfigError> {
    let key = |name: &str| format!("models[{index}].{name}");
    let replicas = raw.replicas.unwrap_or(1);
    let most = raw.replica_max.unwrap_or(replicas.max(1));
    within(&key("replica_max"), most, REPLICAS_MAX)?;
    within(&key("replicas"), replicas, most)?;
    if let Some(date) = &raw.deprecation_date {
        let day = format_description!("[year]-[month]-[day]");
        if Date::parse(date, day).is_err() {
            let problem = format!("it must be a day such as 2027-01-31; it is `{date}`");
            return Err(invalid(&key("deprecation_date"), problem));
        }
    }
    let idle = raw.idle_timeout_seconds;
    let idle = idle.map(|value| seconds(&key("idle_timeout_seconds"), value));
    Ok(ModelLifecycle {
        enabled: raw.enabled.unwrap_or(true),
        load_on_demand: raw.load_on_demand,
        pinned: raw.pinned,
        idle_timeout: idle.transpose()?,
        replicas,
        replica_max: most,
        hidden: raw.hidden,
        owned_by: raw.owned_by.clone(),
        deprecation_date: raw.deprecation_date.clone(),
    })
}

/// The public name of a folder, or of a GGUF file.
fn name_of(path: &Path) -> String {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let gguf = path
        .extension()
        .is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"));
    let name = if gguf {
        path.file_stem()
    } else {
        path.file_name()
    };
    name.map_or_else(
        || "model".to_owned(),
        |name| name.to_string_lossy().into_owned(),
    )
}

fn check_script(raw: RawScript) -> Script {
    let lines = raw.lines.into_iter().map(|line| ScriptLine {
        when: line.when,
        say: line.say,
    });
    Script {
        kind: match raw.kind {
            RawScriptKind::Tokens => ScriptKind::Tokens,
            RawScriptKind::Conversation => ScriptKind::Conversation,
        },
        lines: lines.collect(),
        default: raw.default,
        token_delay: Duration::from_millis(raw.token_delay_ms),
        repeat: raw.repeat,
        context_length: raw.context_length,
        max_sequences: raw.max_sequences,
    }
}
