//! Meanings of aliases, and the part of the callers that a canary gets.

use super::*;

fn is_model(name: &str) -> bool {
    ["old", "new", "third"].contains(&name)
}

fn to(target: &str) -> Alias {
    Alias {
        target: target.to_owned(),
        canary: None,
    }
}

fn canary(percent: f64, tenants: &[&str]) -> Alias {
    Alias {
        canary: Some(Canary {
            target: "new".to_owned(),
            percent,
            tenants: tenants.iter().map(|tenant| (*tenant).to_owned()).collect(),
        }),
        ..to("old")
    }
}

fn target_of(table: &AliasTable, tenant: Option<&str>, key: &str) -> String {
    let chosen = table.choose("prod", AliasCaller { tenant, key });
    chosen.expect("an alias").target
}

#[test]
fn feature_m2_an_alias_is_switched_and_rolled_back() {
    let table = AliasTable::default();
    assert!(table.set("prod", to("old"), &is_model).expect("an alias"));
    assert_eq!(
        table.roll_back("prod", &is_model),
        Err(AliasError::NoPrevious("prod".to_owned()))
    );
    assert!(!table.set("prod", to("new"), &is_model).expect("an alias"));
    // The same meaning once more is no change.
    table.set("prod", to("new"), &is_model).expect("an alias");
    assert_eq!(table.target("prod").as_deref(), Some("new"));
    table
        .roll_back("prod", &is_model)
        .expect("an earlier meaning");
    assert_eq!(table.target("prod").as_deref(), Some("old"));
    table.roll_back("prod", &is_model).expect("and forth");
    assert_eq!(table.target("prod").as_deref(), Some("new"));
    table.remove("prod").expect("an alias");
    assert_eq!(table.target("prod"), None);
    assert!(table.remove("prod").is_err());
}

#[test]
fn feature_m2_aliases_have_names_of_their_own_and_models_that_exist() {
    let table = AliasTable::default();
    let set = |name: &str, alias| table.set(name, alias, &is_model);
    assert_eq!(
        set("old", to("new")),
        Err(AliasError::IsModel("old".to_owned()))
    );
    assert!(matches!(
        set("prod", to("prod")),
        Err(AliasError::NoModel {
            field: "target",
            ..
        })
    ));
    for percent in [-1.0, 100.1, f64::NAN] {
        assert!(matches!(
            set("prod", canary(percent, &[])),
            Err(AliasError::Bad {
                field: "canary.percent",
                ..
            })
        ));
    }
    assert!(matches!(
        set(" ", to("new")),
        Err(AliasError::Bad { field: "name", .. })
    ));
    assert!(table.rows().is_empty());
}

#[test]
fn feature_m2_an_alias_of_a_configuration_waits_for_its_models() {
    let table = AliasTable::default();
    let meanings = |alias: Alias, previous: Option<Alias>| AliasMeanings { alias, previous };
    let define = |name: &str, meanings| table.define(name, meanings, &is_model);
    let later = meanings(to("later"), Some(to("old")));
    assert_eq!(define("prod", later.clone()), Ok(true));
    assert_eq!(define("prod", later), Ok(false));
    assert_eq!(target_of(&table, None, "k"), "later");
    let row = table.row("prod").expect("an alias");
    assert_eq!(row.alias.missing(&is_model), [("target", "later")]);
    // It can be rolled back to what a file has as the meaning before, and to no model that is not there.
    table
        .roll_back("prod", &is_model)
        .expect("an earlier meaning");
    assert_eq!(target_of(&table, None, "k"), "old");
    assert!(matches!(
        table.roll_back("prod", &is_model),
        Err(AliasError::NoModel { .. })
    ));
    assert_eq!(
        define("old", meanings(to("new"), None)),
        Err(AliasError::IsModel("old".to_owned()))
    );
    let mut wrong = canary(101.0, &[]);
    assert!(define("more", meanings(wrong.clone(), None)).is_err());
    assert!(define("more", meanings(to("new"), Some(wrong.clone()))).is_err());
    wrong.canary.as_mut().expect("a canary").target = "later".to_owned();
    assert_eq!(wrong.missing(&is_model), [("canary.target", "later")]);
}

#[test]
fn feature_m2_a_canary_gets_its_part_of_the_callers_and_each_stays() {
    let table = AliasTable::default();
    let keys: Vec<String> = (0..10_000)
        .map(|number| format!("session-{number}"))
        .collect();
    let with = |percent: f64| {
        table
            .set("prod", canary(percent, &[]), &is_model)
            .expect("an alias");
        let new = keys
            .iter()
            .filter(|key| target_of(&table, None, key) == "new");
        new.cloned().collect::<Vec<String>>()
    };
    let tenth = with(10.0);
    assert!((850..1150).contains(&tenth.len()), "{}", tenth.len());
    assert_eq!(with(10.0), tenth, "sticky");
    let third = with(33.0);
    assert!(
        tenth.iter().all(|key| third.contains(key)),
        "nobody goes back"
    );
    assert_eq!(with(0.0).len(), 0);
    assert_eq!(with(100.0).len(), keys.len());
}

#[test]
fn feature_m2_a_canary_gets_the_tenants_that_it_names() {
    let table = AliasTable::default();
    table
        .set("prod", canary(0.0, &["lab"]), &is_model)
        .expect("an alias");
    assert_eq!(target_of(&table, Some("lab"), "k"), "new");
    assert_eq!(target_of(&table, Some("shop"), "k"), "old");
    assert_eq!(target_of(&table, None, "k"), "old");
}

#[test]
fn numbers_are_kept_by_model_as_long_as_it_is_meant() {
    let table = AliasTable::default();
    table.set("prod", to("old"), &is_model).expect("an alias");
    let count = || {
        let chosen = table
            .choose("prod", AliasCaller::default())
            .expect("an alias");
        chosen.counters.ended(
            true,
            Duration::from_millis(4),
            Some(Duration::from_millis(2)),
        );
    };
    count();
    table.set("prod", to("new"), &is_model).expect("an alias");
    count();
    let row = table.row("prod").expect("a row");
    assert_eq!(row.targets.len(), 2);
    for known in row.targets.values() {
        let near = |value: f64, exact: f64| (value / exact - 1.0).abs() < 0.01;
        assert!(near(known.p50_latency_ms, 4.0) && near(known.p99_latency_ms, 4.0));
        assert!(near(known.p50_first_token_ms, 2.0) && near(known.p99_first_token_ms, 2.0));
        let numbers = AliasNumbers {
            requests: 1,
            errors: 1,
            no_room: 0,
            mean_latency_ms: 4.0,
            mean_first_token_ms: 2.0,
            ..*known
        };
        assert_eq!(*known, numbers);
    }
    table.set("prod", to("third"), &is_model).expect("an alias");
    let row = table.row("prod").expect("a row");
    assert_eq!(row.targets.keys().collect::<Vec<_>>(), ["new"]);
}
