//! Grammars of JSON schemas against the JSON Schema test suite, against instances of real schemas, and against
//! a validator: what a grammar takes must be valid.

mod counts;
mod grammars;
mod sources;

use std::path::Path;

use counts::{Counts, Table};
use grammars::{Native, Ours, Vocabulary};

/// Documents that are generated for each schema of the suite.
const GENERATED: u64 = 3;

#[test]
fn feature_p8_the_json_schema_test_suite() {
    let test = "feature_p8_the_json_schema_test_suite";
    let Some(folder) = sources::suite(env!("CARGO_TARGET_TMPDIR"), test) else {
        return;
    };
    let vocabulary = Vocabulary::bytes();
    let (mut ours, native) = (Ours::new(&vocabulary), Native::new(&vocabulary));
    let (mut table, mut wrong) = (Table::default(), Vec::new());
    for draft in ["draft7", "draft2020-12"] {
        for group in sources::groups(&folder, draft) {
            let mut counts = Counts::default();
            let grammar = ours.compile(&group.schema);
            counts.count(&group, grammar, &native, &mut wrong);
            let generated = ours.generate(&group.schema, GENERATED);
            counts.count_generated(&group, &generated, &mut wrong);
            table.add(&group.category, counts);
        }
    }
    assert_eq!(
        wrong,
        Vec::<String>::new(),
        "documents that are taken and do not fit"
    );
    table.check(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas.md"));
}

/// `MORTISE_SCHEMAS` names a folder of files as in `maskbench/data` of guidance-ai/jsonschemabench: a schema with instances
/// that fit and do not. `MORTISE_SCHEMAS_EACH=N` takes each N-th, `MORTISE_SCHEMAS_GENERATED=N` has N documents of each written.
#[test]
fn feature_p8_real_schemas() {
    let Some(folder) = std::env::var_os("MORTISE_SCHEMAS") else {
        return sources::skipped(
            "feature_p8_real_schemas: MORTISE_SCHEMAS names no folder of schemas",
        );
    };
    let each =
        std::env::var("MORTISE_SCHEMAS_EACH").map_or(1, |each| each.parse().expect("a number"));
    let generated = std::env::var("MORTISE_SCHEMAS_GENERATED")
        .map_or(0, |count| count.parse().expect("a number"));
    let vocabulary = Vocabulary::bytes();
    let (mut ours, native) = (Ours::new(&vocabulary), Native::new(&vocabulary));
    let (mut table, mut wrong) = (Table::default(), Vec::new());
    let (mut times, mut native_times, mut slowest) = (Vec::new(), Vec::new(), Vec::new());
    for group in sources::files(Path::new(&folder), each) {
        let mut counts = Counts::default();
        let start = std::time::Instant::now();
        let grammar = ours.compile(&group.schema);
        times.push(start.elapsed());
        slowest.push((start.elapsed(), group.name.clone()));
        let start = std::time::Instant::now();
        drop(native.compile(&group.schema));
        native_times.push(start.elapsed());
        if let Err(error) = &grammar {
            println!("{}: {error}", group.name);
        }
        counts.count(&group, grammar, &native, &mut wrong);
        let generated = ours.generate(&group.schema, generated);
        counts.count_generated(&group, &generated, &mut wrong);
        table.add(&group.category, counts);
    }
    println!("{}", table.written());
    for (name, mut times) in [("mortise", times), ("llguidance", native_times)] {
        times.sort_unstable();
        let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize];
        println!(
            "{name}: compiled in {:?} p50, {:?} p99, {:?} at most",
            at(0.5),
            at(0.99),
            at(1.0)
        );
    }
    slowest.sort_unstable();
    for (time, name) in slowest.iter().rev().take(5) {
        println!("{name}: compiled in {time:?}");
    }
    for wrong in &wrong {
        println!("taken: {wrong}");
    }
    assert!(wrong.is_empty(), "documents are taken that do not fit");
}
