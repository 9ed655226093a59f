//! The state of an instance, handed over by the functions that its component was given when it was separated from its
//! memory (`mortise_aot`).

use std::time::Duration;

use mortise_aot::{KEEP_GLOBALS, KEEP_MEMORY, PreparedState, TAKE};
use wasmtime::component::{ComponentNamedList, Instance, LinkerInstance, Lower, WasmList};
use wasmtime::{AsContext, Store, StoreContextMut};

use crate::call::Misuse;
use crate::state::{CallState, StoreData};

/// Bytes of memory that an instance hands over at a time; below what one call may hand out, whatever the kind.
const PIECE_BYTES: u32 = 256 << 10;

/// Time in which an instance hands over its memory: a thousand times what it takes.
const MAX_KEEPING: Duration = Duration::from_secs(10);

/// Link the function that an instance hands its state over by.
pub(crate) fn add_to_linker(linker: &mut LinkerInstance<'_, StoreData>) -> wasmtime::Result<()> {
    type Item = (u32, u64, WasmList<u8>);
    linker.func_wrap(
        TAKE,
        |mut context: StoreContextMut<'_, StoreData>, (item, value, bytes): Item| {
            // It leaves the store while the list, which borrows it, is read.
            let mut kept = context.data_mut().kept.take();
            let taken = match &mut kept {
                Some(kept) => kept.take(item, value, bytes.as_le_slice(context.as_context())),
                None => Err("state that nobody asked for"),
            };
            context.data_mut().kept = kept;
            taken.map_err(|reason| Misuse(reason.to_owned()).into())
        },
    )
}

/// State of a prepared instance.
pub(crate) async fn keep(store: &mut Store<StoreData>) -> wasmtime::Result<PreparedState> {
    let missing = || wasmtime::Error::msg("it has not handed over its state");
    let instance = store.data().instance.ok_or_else(missing)?;
    let state = store.data_mut();
    state.call = CallState::new(
        "snapshot",
        state.call.request_id.clone(),
        MAX_KEEPING,
        MAX_KEEPING,
    );
    state.kept = Some(PreparedState::default());
    store.set_epoch_deadline(1);
    hand_over(store, instance, KEEP_GLOBALS, ()).await?;
    let kept = store.data().kept.as_ref();
    let bytes = kept
        .and_then(PreparedState::memory_bytes)
        .ok_or_else(missing)?;
    let mut from = 0;
    while u64::from(from) < bytes {
        let to = u32::try_from(bytes)
            .unwrap_or(u32::MAX)
            .min(from + PIECE_BYTES);
        hand_over(store, instance, KEEP_MEMORY, (from, to)).await?;
        from = to;
    }
    store.data_mut().kept.take().ok_or_else(missing)
}

/// Call a function by which an instance hands over its state.
async fn hand_over<P>(
    store: &mut Store<StoreData>,
    instance: Instance,
    name: &str,
    with: P,
) -> wasmtime::Result<()>
where
    P: ComponentNamedList + Lower + Send + Sync + 'static,
{
    let function = instance.get_typed_func::<P, ()>(&mut *store, name)?;
    function.call_async(&mut *store, with).await
}
