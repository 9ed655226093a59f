//! Products of one vector of bytes with many: the scan of an index of vectors in eight bits.
//!
//! Sums are of integers, so that all instruction sets give the same.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "aarch64")]
mod neon;

/// Numbers of a vector, so that no sum overflows.
pub const MAX_DIMENSIONS: usize = 1 << 16;

/// Rows that are computed together: each part of the query is read once for all of them.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
const ROWS: usize = 4;
/// Groups of rows between the one that is computed and the one that is fetched.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
const GROUPS_AHEAD: usize = 2;

/// Write the dot product of `query` with each of `rows`, which have as many numbers as it and stand one behind the other.
/// `next` are rows that are read afterwards: their beginning is fetched meanwhile, since a scan is as fast as memory is.
///
/// # Panics
/// If `rows` are not as many as `out` has places, or have more than [`MAX_DIMENSIONS`] numbers each.
pub fn byte_dots(query: &[i8], rows: &[i8], next: &[i8], out: &mut [i32]) {
    let dimensions = query.len();
    assert!(dimensions <= MAX_DIMENSIONS && Some(rows.len()) == dimensions.checked_mul(out.len()));
    if dimensions == 0 {
        out.fill(0);
        return;
    }
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    if crate::has_vectors() {
        vectors(query, rows, next, out);
        return;
    }
    let _ = next;
    portable(query, rows, out);
}

/// Rows in groups, each part of the query for all of a group.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn vectors(query: &[i8], rows: &[i8], next: &[i8], out: &mut [i32]) {
    let length = ROWS * query.len();
    let (out, last) = out.as_chunks_mut::<ROWS>();
    let (groups, rest) = rows.split_at(out.len() * length);
    let groups = groups.chunks_exact(length);
    let behind = groups.clone().chain(next.chunks_exact(length));
    let mut behind = behind.skip(GROUPS_AHEAD).map(<[i8]>::as_ptr);
    for (out, group) in out.iter_mut().zip(groups) {
        let ahead = behind.next().unwrap_or(group.as_ptr());
        // SAFETY: the processor has AVX2 or NEON, as the caller has found, and a group has `ROWS` rows of as many numbers as
        // the query.
        #[allow(unsafe_code, reason = "calls a function compiled for checked features")]
        unsafe {
            *out = together::<ROWS>(query, group, ahead);
        }
    }
    for (out, row) in last.iter_mut().zip(rest.chunks_exact(query.len())) {
        // SAFETY: as above, of one row.
        #[allow(unsafe_code, reason = "calls a function compiled for checked features")]
        unsafe {
            [*out] = together::<1>(query, row, row.as_ptr());
        }
    }
}

#[cfg(target_arch = "x86_64")]
use avx2::together;
#[cfg(target_arch = "aarch64")]
use neon::together;

/// One number at a time.
fn portable(query: &[i8], rows: &[i8], out: &mut [i32]) {
    for (out, row) in out.iter_mut().zip(rows.chunks_exact(query.len())) {
        *out = dot(query, row);
    }
}

#[inline(always)]
fn dot(query: &[i8], row: &[i8]) -> i32 {
    let pairs = query.iter().zip(row);
    pairs.fold(0, |sum: i32, (query, row)| {
        // Without checks for overflow, which the bound of dimensions rules out.
        sum.wrapping_add(i32::from(*query).wrapping_mul(i32::from(*row)))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn products_are_those_of_wide_integers(
            (query, rows) in (1usize..100, 0usize..11).prop_flat_map(|(dimensions, rows)| (
                prop::collection::vec(any::<i8>(), dimensions),
                prop::collection::vec(any::<i8>(), dimensions * rows),
            )),
        ) {
            let expected: Vec<i64> = rows
                .chunks_exact(query.len())
                .map(|row| query.iter().zip(row).map(|(a, b)| i64::from(*a) * i64::from(*b)).sum())
                .collect();
            let mut found = vec![7; expected.len()];
            byte_dots(&query, &rows, &rows, &mut found);
            prop_assert_eq!(found.iter().copied().map(i64::from).collect::<Vec<_>>(), &expected[..]);
            portable(&query, &rows, &mut found);
            prop_assert_eq!(found.into_iter().map(i64::from).collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn the_largest_vectors_do_not_overflow() {
        let query = vec![i8::MIN; MAX_DIMENSIONS];
        let rows = query.repeat(5);
        let mut found = [0; 5];
        byte_dots(&query, &rows, &rows, &mut found);
        assert_eq!(found, [1 << 30; 5]);
    }

    #[test]
    fn vectors_without_numbers_have_no_products() {
        let mut found = [3; 2];
        byte_dots(&[], &[], &[], &mut found);
        assert_eq!(found, [0; 2]);
    }

    #[test]
    #[should_panic(expected = "dimensions")]
    fn rows_of_another_length_are_refused() {
        byte_dots(&[1, 2], &[1, 2, 3], &[], &mut [0]);
    }
}
