//! `mortise plugin push`, `pull` and `search`: plugins in OCI registries and in layouts.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use mortise_harness::prove;
use mortise_plugin::{Component, ComponentSource, HostConfig, PluginHost};
use mortise_plugin_manager::{PluginConfig, check_signature};
use mortise_registry::{
    ArtifactStore, Digest, Layout, Lock, LockedPlugin, PluginArtifact, Pulled, Reference,
    RegistryClient, RegistryConfig, is_file_name, pull, push,
};
use serde_json::{Value, json};

use crate::cosign::{self, ArtifactKey};
use crate::registry_args::{PluginPullArgs, PluginPushArgs, PluginSearchArgs};
use crate::sign::signature_of;

/// Annotations that say what a plugin is.
const KINDS: &str = "dev.mortise.plugin.kinds";
const WIT: &str = "dev.mortise.plugin.wit";
const SERVES: &str = "dev.mortise.plugin.serves";
const TITLE: &str = "org.opencontainers.image.title";
const VERSION: &str = "org.opencontainers.image.version";

/// Repositories of a search whose manifests are asked for.
const MAX_DESCRIBED: usize = 50;

/// Check a plugin and push it. Says under which digest.
pub(crate) fn push_plugin(args: &PluginPushArgs, credentials: &[PathBuf]) -> anyhow::Result<Value> {
    ensure!(
        args.reference.digest.is_none(),
        "`{}`: the digest is known once it is pushed; leave it out",
        args.reference
    );
    let wasm =
        fs::read(&args.file).with_context(|| format!("cannot read `{}`", args.file.display()))?;
    let component = checked(args.file.clone(), wasm.clone())?;
    let beside = signature_of(&args.file);
    let signature = match fs::read(&beside) {
        Ok(bytes) => Some(bytes),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return Err(error).context(format!("cannot read `{}`", beside.display())),
    };
    let signed = signature.is_some();
    let plugin = PluginArtifact {
        wasm,
        signature,
        imports: component
            .imports()
            .iter()
            .map(ToString::to_string)
            .collect(),
        exports: exports(&component),
        annotations: annotations(&args.reference, &component),
    };
    let key = args.cosign_key.as_deref().map(ArtifactKey::read);
    let key = key.transpose()?;
    let digest = match &args.place.layout {
        Some(folder) => store(&mut Layout::new(folder), args, &plugin, key.as_ref())?,
        None => {
            let config = args.place.wire.config(credentials);
            let mut registry = RegistryClient::new(&args.reference.registry, config)?;
            store(&mut registry, args, &plugin, key.as_ref())?
        }
    };
    Ok(json!({
        "reference": args.reference.named(),
        "digest": digest,
        "pinned": format!("{}@{digest}", args.reference.named()),
        "signed": signed,
        "cosigned": key.is_some(),
    }))
}

/// Push a plugin, and its signature by cosign if there is a key.
fn store(
    store: &mut impl ArtifactStore,
    args: &PluginPushArgs,
    plugin: &PluginArtifact,
    key: Option<&ArtifactKey>,
) -> anyhow::Result<Digest> {
    let digest = push(store, &args.reference, plugin)?;
    if let Some(key) = key {
        key.push(store, &args.reference, &digest)?;
    }
    Ok(digest)
}

/// The plugin, loaded as a server would, with the cases that it carries passed.
fn checked(path: PathBuf, wasm: Vec<u8>) -> anyhow::Result<std::sync::Arc<Component>> {
    let host = PluginHost::new(HostConfig::default())?;
    let component = host.load(ComponentSource::Read { path, wasm })?;
    prove(&host, &component, &PluginConfig::default())?;
    Ok(component)
}

/// The interfaces that a plugin exports, as WIT names them.
fn exports(component: &Component) -> Vec<String> {
    let against = component.built_against();
    let (package, version) = against.split_once('@').unwrap_or((against, ""));
    let kinds = component.kinds().iter();
    kinds
        .map(|kind| format!("{package}/{}@{version}", kind.as_str()))
        .collect()
}

fn annotations(reference: &Reference, component: &Component) -> BTreeMap<String, String> {
    let kinds: Vec<&str> = component.kinds().iter().map(|kind| kind.as_str()).collect();
    let mut annotations = BTreeMap::from([
        (TITLE.to_owned(), format!("{}.wasm", reference.name())),
        (VERSION.to_owned(), component.version().to_owned()),
        (KINDS.to_owned(), kinds.join(",")),
        (WIT.to_owned(), component.built_against().to_string()),
    ]);
    if let Some(serves) = component.serves() {
        annotations.insert(SERVES.to_owned(), serves.to_owned());
    }
    annotations
}

/// Pull one plugin, or all that the lock file names. Says what was put where.
pub(crate) fn pull_plugins(
    args: &PluginPullArgs,
    credentials: &[PathBuf],
) -> anyhow::Result<Value> {
    let keys = trusted_keys(&args.trusted_keys)?;
    let folder = &args.plugins;
    let mut lock = Lock::of(folder)?;
    let Some(reference) = &args.reference else {
        let locked = lock.plugins.clone();
        ensure!(
            !locked.is_empty(),
            "the lock file of `{}` names no plugin; name one, such as registry.example/team/my-policy:1.0",
            folder.display()
        );
        let mut done = Vec::new();
        for entry in locked {
            let reference = entry.source.parse::<Reference>()?;
            done.push(one(
                args,
                credentials,
                &keys,
                &mut lock,
                &reference,
                &entry.file,
            )?);
        }
        return Ok(json!({"plugins": done}));
    };
    let file = match &args.file {
        Some(file) => file.clone(),
        None => format!("{}.wasm", reference.name()),
    };
    ensure!(
        is_file_name(&file),
        "--file: `{}` is no name such as my_policy.wasm",
        file.escape_default()
    );
    let done = one(args, credentials, &keys, &mut lock, reference, &file)?;
    Ok(json!({"plugins": [done]}))
}

/// Put one plugin into the folder, by what the lock file says of it.
pub(crate) fn one(
    args: &PluginPullArgs,
    credentials: &[PathBuf],
    keys: &[[u8; 32]],
    lock: &mut Lock,
    reference: &Reference,
    file: &str,
) -> anyhow::Result<Value> {
    let path = args.plugins.join(file);
    let locked = lock.entry(file).cloned();
    let wanted = wanted(args, reference, locked.as_ref(), &path)?;
    let pulled = fetch(args, credentials, &wanted)
        .with_context(|| format!("nothing was installed for `{file}`"))?;
    check(
        &pulled,
        locked.as_ref().filter(|_| !args.update),
        keys,
        &path,
    )
    .with_context(|| format!("nothing was installed for `{file}`"))?;
    let before = fs::read(&path).ok();
    let same = before.is_some_and(|before| before == pulled.wasm);
    install(&path, &pulled, same)?;
    lock.set(LockedPlugin {
        file: file.to_owned(),
        source: reference.named(),
        manifest: pulled.manifest.clone(),
        content: pulled.layer.clone(),
    });
    lock.write(&args.plugins)?;
    Ok(json!({
        "file": path,
        "source": reference.named(),
        "manifest": pulled.manifest,
        "content": pulled.layer,
        "signed": pulled.signature.is_some(),
        "changed": !same,
    }))
}

/// The reference with the digest that the lock file pins, unless it is to be updated.
fn wanted(
    args: &PluginPullArgs,
    reference: &Reference,
    locked: Option<&LockedPlugin>,
    path: &Path,
) -> anyhow::Result<Reference> {
    let mut wanted = reference.clone();
    match locked {
        _ if args.update => {}
        None if path.exists() => bail!(
            "`{}` is there and not in the lock file; --update replaces it",
            path.display()
        ),
        None => {}
        Some(locked) => {
            if locked.source != reference.named() {
                bail!(
                    "`{}` is locked to `{}`; --update takes `{}` for it, and --file gives that another name",
                    path.display(),
                    locked.source,
                    reference.named()
                );
            }
            if let Some(digest) = reference.digest.as_ref().filter(|d| **d != locked.manifest) {
                bail!(
                    "`{}` is locked to {}, and {digest} is asked for; --update takes that",
                    path.display(),
                    locked.manifest
                );
            }
            wanted.digest = Some(locked.manifest.clone());
        }
    }
    Ok(wanted)
}

fn fetch(
    args: &PluginPullArgs,
    credentials: &[PathBuf],
    wanted: &Reference,
) -> anyhow::Result<Pulled> {
    if let Some(folder) = &args.place.layout {
        return taken(&mut Layout::new(folder), args, wanted);
    }
    let config: RegistryConfig = args.place.wire.config(credentials);
    let host = args.mirror.as_deref().unwrap_or(&wanted.registry);
    taken(&mut RegistryClient::new(host, config)?, args, wanted)
}

/// Pull a plugin that is signed by cosign, if that is asked for.
fn taken(
    store: &mut impl ArtifactStore,
    args: &PluginPullArgs,
    wanted: &Reference,
) -> anyhow::Result<Pulled> {
    let pulled = pull(store, wanted)?;
    cosign::check(store, wanted, &pulled.manifest, &args.cosign_keys)?;
    Ok(pulled)
}

/// Hold what came to the lock file, the trusted keys, and what a server asks of a plugin.
fn check(
    pulled: &Pulled,
    locked: Option<&LockedPlugin>,
    keys: &[[u8; 32]],
    path: &Path,
) -> anyhow::Result<()> {
    if let Some(locked) = locked.filter(|locked| locked.content != pulled.layer) {
        bail!(
            "its content has the digest {}, and the lock file says {}",
            pulled.layer,
            locked.content
        );
    }
    if !keys.is_empty() {
        let Some(signature) = &pulled.signature else {
            bail!("it is not signed, and --trusted-key wants that");
        };
        check_signature(&pulled.wasm, signature, keys).map_err(anyhow::Error::msg)?;
    }
    checked(path.to_owned(), pulled.wasm.clone())?;
    Ok(())
}

/// Write the file and its signature, the signature first: a server that watches the folder reads both once the file
/// has stayed the same for a while.
fn install(path: &Path, pulled: &Pulled, same: bool) -> anyhow::Result<()> {
    let beside = signature_of(path);
    match &pulled.signature {
        Some(signature) => mortise_registry::write_file(&beside, signature)?,
        None => match fs::remove_file(&beside) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).context(format!("cannot remove `{}`", beside.display()));
            }
            _ => {}
        },
    }
    if !same {
        mortise_registry::write_file(path, &pulled.wasm)?;
    }
    Ok(())
}

fn trusted_keys(texts: &[String]) -> anyhow::Result<Vec<[u8; 32]>> {
    let read = |text: &String| {
        let pairs = text.as_bytes().chunks(2);
        let bytes = pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
        let bytes: Option<Vec<u8>> = bytes.collect();
        let key = bytes.and_then(|bytes| bytes.try_into().ok());
        key.with_context(|| {
            format!("--trusted-key: `{text}` is no ed25519 public key: 64 hexadecimal digits")
        })
    };
    texts.iter().map(read).collect()
}

/// Plugins of a registry by a part of their names.
pub(crate) fn search(args: &PluginSearchArgs, credentials: &[PathBuf]) -> anyhow::Result<Value> {
    let mut registry = RegistryClient::new(&args.registry, args.wire.config(credentials))?;
    let names = registry.search(&args.term).with_context(|| {
        format!(
            "`{}` cannot be searched; not every registry has a catalogue",
            args.registry
        )
    })?;
    let more = names.len().saturating_sub(MAX_DESCRIBED);
    let mut found = Vec::new();
    for name in names.iter().take(MAX_DESCRIBED) {
        let tags = registry.tags(name)?;
        let Some(tag) = tags.iter().find(|tag| *tag == "latest").or(tags.last()) else {
            continue;
        };
        let reference: Reference = format!("{}/{name}:{tag}", args.registry).parse()?;
        // Repositories of container images are no plugins, and no mistake.
        let Ok((digest, annotations)) = mortise_registry::describe(&mut registry, &reference)
        else {
            continue;
        };
        found.push(json!({
            "name": format!("{}/{name}", args.registry),
            "tags": tags,
            "described": tag,
            "digest": digest,
            "kinds": annotations.get(KINDS),
            "wit": annotations.get(WIT),
            "version": annotations.get(VERSION),
            "serves": annotations.get(SERVES),
        }));
    }
    Ok(json!({"plugins": found, "not_described": more}))
}
