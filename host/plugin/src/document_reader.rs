//! The component that reads files which are not text. The component is not a plugin: operators cannot replace it. Each
//! file is read as plugins are run, in an instance of its own, without any import that does something.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{OnceCell, OwnedSemaphorePermit};
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{InstancePre, Linker, LinkerInstance};
use wasmtime::{Engine, Store, StoreContextMut, Trap, UpdateDeadline};

use crate::compiler::MachineCode;
use crate::cpu_share::{CpuShare, LONG_CALL_EPOCHS};
use crate::engine::EPOCH;
use crate::limits::{MAX_READING, MAX_READING_BYTES, MAX_READING_OUTPUT_BYTES, READING_PATIENCE};
use crate::state::MemoryUse;
use crate::{ComponentSource, LoadError, PluginHost};

/// The interface that reads PDF files, and its function.
const INTERFACE: &str = "mortise:reader/pdf@0.1.0";
const FUNCTION: &str = "read";

/// Reason for which a file is not read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The file cannot be read, as the text says.
    #[error("{0}")]
    Refused(String),
    /// Reading the file takes too long.
    #[error("the file takes more than {} seconds to read", .0.as_secs_f32())]
    Deadline(Duration),
    /// Reading the file takes too much memory.
    #[error("the file takes more than {} MiB of memory to read", .0 >> 20)]
    Memory(usize),
    /// The text of the file is too long.
    #[error("the file has more text than a document may have")]
    Output,
    /// The reader broke down on the file.
    #[error("the file is broken in a way that its reader does not survive")]
    Broken,
    /// There is no room for an instance.
    #[error("there is no room to read the file; the limit is {0} instances of plugins")]
    Overloaded(usize),
    /// The reader cannot be used.
    #[error("the reader of files does not work: {0}")]
    Unusable(String),
}

/// Reader of files. The component is loaded with the first file.
pub struct DocumentReader {
    host: PluginHost,
    /// Unpacks the component, when the first file comes.
    source: fn() -> ComponentSource,
    /// Time in which the component may run for a file.
    most: Duration,
    loaded: OnceCell<InstancePre<Reading>>,
}

impl fmt::Debug for DocumentReader {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("DocumentReader")
            .finish_non_exhaustive()
    }
}

impl DocumentReader {
    /// A reader whose component comes from `source`.
    pub fn new(host: PluginHost, source: fn() -> ComponentSource) -> Self {
        Self {
            host,
            source,
            most: MAX_READING,
            loaded: OnceCell::new(),
        }
    }

    /// Replace the time in which the component may run for a file.
    pub fn within(self, most: Duration) -> Self {
        Self { most, ..self }
    }

    /// The text of each page of a PDF file.
    ///
    /// # Errors
    /// When the file cannot be read within the bounds; the text says why.
    pub async fn read(&self, file: &[u8]) -> Result<Vec<String>, ReadError> {
        let pre = self.loaded.get_or_try_init(|| self.load()).await?;
        let place = Arc::clone(self.host.instance_permits()).try_acquire_owned();
        let place = place.map_err(|_| ReadError::Overloaded(self.host.max_instances()))?;
        let _in_use = self.host.cpu_share().enter();
        let now = Instant::now();
        let reading = Reading {
            memory: MemoryUse::new(MAX_READING_BYTES),
            most: self.most,
            epochs: 0,
            resumes_at: now,
            latest_end: now + self.most * READING_PATIENCE,
            expired: false,
            _place: place,
        };
        let mut store = Store::new(self.host.engine(), reading);
        store.limiter(|reading| &mut reading.memory);
        store.set_hostcall_fuel(MAX_READING_OUTPUT_BYTES);
        interrupt(&mut store, Arc::clone(self.host.cpu_share()));
        let outcome = call(pre, &mut store, file).await;
        let told = match outcome {
            Ok(Ok(pages)) => Ok(pages),
            Ok(Err(reason)) => Err(ReadError::Refused(reason)),
            Err(error) => Err(classify(&error, store.data())),
        };
        // Its memory is given back where nobody waits.
        tokio::task::spawn_blocking(move || drop(store));
        told
    }

    async fn load(&self) -> Result<InstancePre<Reading>, ReadError> {
        let (host, source) = (self.host.clone(), self.source);
        let made = tokio::task::spawn_blocking(move || prepare(&host, source()));
        let made = made.await;
        let made = made.map_err(|error| ReadError::Unusable(error.to_string()))?;
        made.map_err(|error| {
            tracing::error!(%error, "the reader of files cannot be loaded");
            ReadError::Unusable(error.to_string())
        })
    }
}

/// Compile the component and find what it imports.
fn prepare(host: &PluginHost, source: ComponentSource) -> Result<InstancePre<Reading>, LoadError> {
    let failed = |error: wasmtime::Error| LoadError::Runtime {
        message: format!("{error:#}"),
    };
    let code = host.compile(source)?;
    let linker = linker(host.engine(), &code).map_err(failed)?;
    linker.instantiate_pre(&code.component).map_err(failed)
}

/// A linker of traps: of all that Rust's standard library imports, only random numbers are asked for.
fn linker(engine: &Engine, code: &MachineCode) -> wasmtime::Result<Linker<Reading>> {
    let compiled = &code.component;
    let mut linker = Linker::new(engine);
    if let Ok(image) = &code.image {
        linker.root().module(mortise_aot::IMAGE, image)?;
    }
    let ty = compiled.component_type();
    for (import, external) in ty.imports(engine) {
        let ComponentItem::ComponentInstance(items) = external.ty else {
            continue;
        };
        if !import.starts_with("wasi:random/") {
            continue;
        }
        let mut instance = linker.instance(import)?;
        for (item, _) in items.exports(engine) {
            random(&mut instance, item)?;
        }
    }
    linker.define_unknown_imports_as_traps(compiled)?;
    Ok(linker)
}

/// Define the host functions for random numbers: they give the same numbers each time, so that a file is read in the
/// same way each time.
fn random(instance: &mut LinkerInstance<'_, Reading>, item: &str) -> wasmtime::Result<()> {
    type Context<'a> = StoreContextMut<'a, Reading>;
    const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
    match item {
        "get-insecure-seed" | "insecure-seed" => {
            instance.func_wrap(item, |_: Context<'_>, ()| Ok(((SEED, !SEED),)))
        }
        "get-random-u64" | "get-insecure-random-u64" => {
            instance.func_wrap(item, |_: Context<'_>, ()| Ok((SEED,)))
        }
        // Trapped with the rest.
        _ => Ok(()),
    }
}

/// Read one file in a new instance.
async fn call(
    pre: &InstancePre<Reading>,
    store: &mut Store<Reading>,
    file: &[u8],
) -> wasmtime::Result<Result<Vec<String>, String>> {
    store.set_epoch_deadline(1);
    let instance = pre.instantiate_async(&mut *store).await?;
    let missing = || wasmtime::Error::msg(format!("it has no {INTERFACE}#{FUNCTION}"));
    let interface = instance.get_export_index(&mut *store, None, INTERFACE);
    let interface = interface.ok_or_else(missing)?;
    let function = instance.get_export_index(&mut *store, Some(&interface), FUNCTION);
    let function = function.ok_or_else(missing)?;
    type Answer = (Result<Vec<String>, String>,);
    let read = instance.get_typed_func::<(&[u8],), Answer>(&mut *store, function)?;
    let (answer,) = read.call_async(&mut *store, (file,)).await?;
    Ok(answer)
}

/// Data of an instance: one file that is read.
struct Reading {
    memory: MemoryUse,
    /// Time in which the guest may run.
    most: Duration,
    /// Epochs in which the guest ran so far.
    epochs: u64,
    resumes_at: Instant,
    /// Latest end, however little of the time the guest had a processor.
    latest_end: Instant,
    /// The deadline passed.
    expired: bool,
    _place: OwnedSemaphorePermit,
}

/// Let the guest yield after each epoch, hold it to the share of long calls, and stop it at its deadline.
fn interrupt(store: &mut Store<Reading>, cpu_share: Arc<CpuShare>) {
    store.epoch_deadline_callback(move |mut context| {
        let now = Instant::now();
        let reading = context.data_mut();
        reading.epochs += 1;
        let most = reading.most.as_millis() / EPOCH.as_millis();
        if u128::from(reading.epochs) >= most || now >= reading.latest_end {
            reading.expired = true;
            return Ok(UpdateDeadline::Interrupt);
        }
        let ran = now.saturating_duration_since(reading.resumes_at);
        let rest = (reading.epochs > LONG_CALL_EPOCHS)
            .then(|| cpu_share.rest_until(now, ran, reading.epochs, 0))
            .flatten();
        reading.resumes_at = rest.unwrap_or(now);
        let pause: Pin<Box<dyn Future<Output = ()> + Send>> = match rest {
            Some(until) => Box::pin(tokio::time::sleep_until(until.into())),
            None => Box::pin(tokio::task::yield_now()),
        };
        Ok(UpdateDeadline::YieldCustom(1, pause))
    });
}

/// The bound that an error stands for, or else a breakdown.
fn classify(error: &wasmtime::Error, reading: &Reading) -> ReadError {
    if reading.expired {
        return ReadError::Deadline(reading.most);
    }
    if reading.memory.denied {
        return ReadError::Memory(MAX_READING_BYTES);
    }
    if error.downcast_ref::<Trap>().is_none() && crate::call::spent_its_fuel(error) {
        return ReadError::Output;
    }
    tracing::info!(error = %error.root_cause(), "a file broke the instance that read it");
    ReadError::Broken
}
