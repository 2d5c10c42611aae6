//! The list of families in the documentation is that of the registry.

use pagella_arch::families;

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/families.md");

/// The table between the two marks, one row per family.
fn table() -> String {
    let mut table = "| Family | Models | `architectures` |\n|---|---|---|\n".to_owned();
    for family in families() {
        let names: Vec<String> =
            family.architectures.iter().map(|name| format!("`{name}`")).collect();
        table += &format!("| {} | {} | {} |\n", family.name, family.notes, names.join(", "));
    }
    table
}

#[test]
fn the_documented_families_are_those_of_the_registry() {
    let text = std::fs::read_to_string(PATH).unwrap();
    let (before, rest) = text.split_once("<!-- families -->\n").unwrap();
    let (found, after) = rest.split_once("<!-- end -->").unwrap();
    if std::env::var_os("PAGELLA_BLESS").is_some() {
        let text = format!("{before}<!-- families -->\n{}<!-- end -->{after}", table());
        std::fs::write(PATH, text).unwrap();
        return;
    }
    assert_eq!(found, table(), "run `PAGELLA_BLESS=1 cargo test -p pagella-arch --test arch docs`");
}
