//! `mask-sink`, linked by hand: the bindings would copy each mask into a vector first.

use wasmtime::component::{LinkerInstance, WasmList};
use wasmtime::{AsContext, StoreContextMut};

use crate::call::Misuse;
use crate::state::{MaskRow, StoreData};

/// Words copied at a time. Copies of 16 KB at once meet a slow path of some processors when
/// source and destination lie a few bytes apart modulo the page size: 5 µs instead of 0.2.
const COPY_WORDS: usize = 256;

type Context<'a> = StoreContextMut<'a, StoreData>;
type Arguments = (u32, WasmList<u32>);

pub(crate) fn add_to_linker(linker: &mut LinkerInstance<'_, StoreData>) -> wasmtime::Result<()> {
    linker.func_wrap("dense", |context: Context<'_>, (slot, words): Arguments| {
        write(context, slot, &words, dense)
    })?;
    linker.func_wrap("only", |context: Context<'_>, (slot, tokens): Arguments| {
        write(context, slot, &tokens, |row, tokens, count| {
            row.fill(0);
            for token in tokens {
                set(row, *token, count, true)?;
            }
            Ok(())
        })
    })?;
    linker.func_wrap(
        "all-but",
        |context: Context<'_>, (slot, tokens): Arguments| {
            write(context, slot, &tokens, |row, tokens, count| {
                row.fill(u32::MAX);
                for token in tokens {
                    set(row, *token, count, false)?;
                }
                Ok(())
            })
        },
    )
}

/// Fill the row from the guest's list. `fill` gets the row, the list and the number of tokens.
fn write(
    mut context: Context<'_>,
    slot: u32,
    list: &WasmList<u32>,
    fill: impl FnOnce(&mut [u32], &[u32], usize) -> Result<(), Misuse>,
) -> wasmtime::Result<()> {
    let tokens = context
        .data()
        .grants
        .vocabulary
        .as_ref()
        .map_or(0, |v| v.len());
    check_slot(&context.data().mask, slot)?;
    // The row leaves the store while the list, which borrows it, is read.
    let mut row = std::mem::take(&mut context.data_mut().mask.words);
    let filled = fill(&mut row, list.as_le_slice(context.as_context()), tokens);
    clear_beyond(&mut row, tokens);
    let mask = &mut context.data_mut().mask;
    mask.words = row;
    mask.written = filled.is_ok();
    Ok(filled?)
}

fn check_slot(mask: &MaskRow, slot: u32) -> Result<(), Misuse> {
    match mask.slot {
        Some(expected) if expected == slot => Ok(()),
        Some(expected) => Err(Misuse(format!(
            "pushed a mask to slot {slot} in a call for slot {expected}"
        ))),
        None => Err(Misuse(format!(
            "pushed a mask to slot {slot} in a call that has none"
        ))),
    }
}

fn dense(row: &mut [u32], words: &[u32], _tokens: usize) -> Result<(), Misuse> {
    if words.len() != row.len() {
        return Err(Misuse(format!(
            "pushed a mask of {} words, and the vocabulary needs {}",
            words.len(),
            row.len()
        )));
    }
    for (target, source) in row.chunks_mut(COPY_WORDS).zip(words.chunks(COPY_WORDS)) {
        for (target, source) in target.iter_mut().zip(source) {
            *target = u32::from_le(*source);
        }
    }
    Ok(())
}

fn set(row: &mut [u32], token: u32, count: usize, allowed: bool) -> Result<(), Misuse> {
    let token = u32::from_le(token);
    let index = token as usize;
    if index >= count {
        return Err(Misuse(format!(
            "named token {token} in a mask, and the vocabulary has {count}"
        )));
    }
    let bit = 1 << (index % 32);
    match allowed {
        true => row[index / 32] |= bit,
        false => row[index / 32] &= !bit,
    }
    Ok(())
}

/// The last word may have room for tokens that do not exist.
fn clear_beyond(row: &mut [u32], tokens: usize) {
    if let (Some(last), used @ 1..) = (row.last_mut(), tokens % 32) {
        *last &= (1 << used) - 1;
    }
}
