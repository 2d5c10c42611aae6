//! The recipe of weights gives the same values here as in Python.

#[allow(dead_code, reason = "shared with other crates' tests")]
#[path = "../../../../testdata/families/recipe.rs"]
mod weights;

#[test]
fn the_recipe_gives_the_pinned_values() {
    let path = crate::support::testdata().join("families/recipe.json");
    let text = std::fs::read_to_string(path).expect("recipe.json exists");
    let pins: Vec<serde_json::Value> = serde_json::from_str(&text).expect("valid JSON");
    assert!(!pins.is_empty());
    for pin in pins {
        let name = pin["name"].as_str().expect("a name");
        let number = |key: &str| pin[key].as_f64().expect("a number");
        let kind = weights::Kind::of(name, number("fan_in") as usize, number("norm_centre") as f32);
        let values = weights::values(name, number("len") as usize, kind);
        let first: Vec<f64> = values.iter().take(8).map(|v| f64::from(*v)).collect();
        assert_eq!(serde_json::json!(first), pin["first"], "{name}");
        assert_eq!(values.iter().map(|v| f64::from(*v)).sum::<f64>(), number("sum"), "{name}");
    }
}
