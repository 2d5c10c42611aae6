//! Every linear of the shared quantised models loads and decodes.

use std::path::Path;

use pagella_formats::exl3::{Codebook, MCG_MULTIPLIER, MUL1_MULTIPLIER, tile};
use pagella_formats::{Checkpoint, Linear, LinearKind, find_linear, load_linear};

/// Base names of all linears of a model with 8 layers, with their extents `(in, out)`.
fn linears() -> Vec<(String, usize, usize)> {
    let mut all = vec![("lm_head".to_owned(), 384, 4096)];
    for layer in 0..8 {
        for (name, inputs, outputs) in [
            ("self_attn.q_proj", 384, 384),
            ("self_attn.k_proj", 384, 128),
            ("self_attn.v_proj", 384, 128),
            ("self_attn.o_proj", 384, 384),
            ("mlp.gate_proj", 384, 1024),
            ("mlp.up_proj", 384, 1024),
            ("mlp.down_proj", 1024, 384),
        ] {
            all.push((format!("model.layers.{layer}.{name}"), inputs, outputs));
        }
    }
    all
}

/// Loads every linear of `model`; returns the relative error against `original` (the RMS of the
/// difference over the RMS of the weights) and the bits per weight, over all linears.
fn check_model(model: &Path, original: &Checkpoint, kind: LinearKind) -> (f64, f64) {
    let checkpoint = Checkpoint::open(model, &[]).unwrap();
    let (mut error, mut power, mut bits, mut count) = (0.0, 0.0, 0.0, 0.0);
    for (name, inputs, outputs) in linears() {
        let bases = [name];
        let request = crate::support::request(&bases, inputs, outputs);
        let exact = load_linear(original, &request).unwrap().values();
        let (found, _) = find_linear(&checkpoint, &request).unwrap();
        let linear = load_linear(&checkpoint, &request).unwrap();
        assert!(found == kind || bases[0] == "lm_head", "{} is {found:?}", bases[0]);
        for (found, exact) in linear.values().into_iter().zip(exact) {
            error += f64::from(found - exact).powi(2);
            power += f64::from(exact).powi(2);
        }
        bits += linear.weight_bytes() as f64 * 8.0;
        count += (inputs * outputs) as f64;
        linear.tensors().iter().for_each(|tensor| checkpoint.release(tensor));
    }
    ((error / power).sqrt(), bits / count)
}

#[test]
fn quantised_models_stay_close_to_their_original() {
    let Some(models) = crate::support::shared("models") else { return };
    let original = Checkpoint::open(&models.join("target-fp16"), &[]).unwrap();
    assert_eq!(original.files().count(), 3);
    // A wrong bit order, row order, group or scale gives an error near or above 1.
    for (model, kind, bound) in [
        ("exl2-2.5bpw", LinearKind::Exl2, 0.5),
        ("exl2-4.0bpw", LinearKind::Exl2, 0.3),
        ("exl2-6.0bpw", LinearKind::Exl2, 0.1),
        ("exl3-2.0bpw", LinearKind::Exl3, 0.4),
        ("exl3-3.0bpw", LinearKind::Exl3, 0.2),
        ("exl3-3.0bpw-mcg", LinearKind::Exl3, 0.2),
        ("exl3-4.0bpw", LinearKind::Exl3, 0.1),
        ("gptq-g128", LinearKind::Gptq, 0.2),
        ("gptq-g128-act", LinearKind::Gptq, 0.2),
        ("target-fp16", LinearKind::Plain, 0.0),
    ] {
        let (error, bits) = check_model(&models.join(model), &original, kind);
        println!("{model}: relative error {error:.4}, {bits:.3} bits per weight");
        assert!(error <= bound, "{model}: {error}");
    }
}

#[test]
fn files_of_numbers_open_alone() {
    let Some(path) = crate::support::shared("golden/transformers_fp32.safetensors") else { return };
    let golden = Checkpoint::open_file(&path).unwrap();
    let ids = golden.require("input_ids").unwrap().to_i64_vec().unwrap();
    assert_eq!(ids.len(), 1536);
    let logits = golden.require("logits_last8").unwrap();
    assert_eq!((logits.shape, logits.to_f32().unwrap().len()), (&[8, 4096][..], 8 * 4096));
}

#[test]
fn exl3_matrices_are_those_of_the_original_program() {
    let Some(path) = crate::support::shared("golden/exllamav3.safetensors") else { return };
    let Some(models) = crate::support::shared("models") else { return };
    let golden = Checkpoint::open_file(&path).unwrap();
    let mut compared = 0;
    for (name, model) in [
        ("2.0", "exl3-2.0bpw"),
        ("3.0", "exl3-3.0bpw"),
        ("3.0-mcg", "exl3-3.0bpw-mcg"),
        ("4.0", "exl3-4.0bpw"),
    ] {
        let checkpoint = Checkpoint::open(&models.join(model), &[]).unwrap();
        let prefix = format!("{name}.inner.");
        for stored in golden.names().filter(|stored| stored.starts_with(&prefix)) {
            let expected = golden.require(stored).unwrap();
            let [inputs, outputs] = *expected.shape else { panic!("{:?}", expected.shape) };
            let bases = [stored[prefix.len()..].to_owned()];
            let request = crate::support::request(&bases, inputs, outputs);
            let Linear::Exl3(linear) = load_linear(&checkpoint, &request).unwrap() else {
                panic!("{stored} is not EXL3")
            };
            assert!(linear.inner() == expected.to_f16().unwrap(), "{stored}");
            compared += 1;
        }
    }
    assert_eq!(compared, 5);
}

#[test]
fn exl3_tiles_of_all_widths_are_those_of_the_original_program() {
    let Some(path) = crate::support::shared("golden/exllamav3.safetensors") else { return };
    let golden = Checkpoint::open_file(&path).unwrap();
    for bits in 1..=8 {
        let of = |what: &str| golden.require(&format!("vec.tile.K{bits}.{what}")).unwrap();
        let tiles = of("packed").data.chunks_exact(tile::tile_bytes(bits));
        let states: Vec<u16> = tiles.flat_map(|tile| tile::states(tile, bits)).collect();
        let expected: Vec<u16> =
            of("states").to_i64_vec().unwrap().into_iter().map(|state| state as u16).collect();
        assert!(states == expected, "states of {bits} bits");
        for (index, codebook) in
            [Codebook::ThreeInst, Codebook::Mcg(MCG_MULTIPLIER), Codebook::Mul1(MUL1_MULTIPLIER)]
                .into_iter()
                .enumerate()
        {
            let expected = of(&format!("cb{index}")).to_f16().unwrap();
            let columns = expected.len() / 16;
            for (at, state) in states.iter().enumerate() {
                let (row, column) = tile::position(at % 256);
                let found = codebook.value(*state);
                let expected = expected[row * columns + at / 256 * 16 + column];
                assert_eq!(found.to_bits(), expected.to_bits(), "{bits} bits, cb{index}, {at}");
            }
        }
    }
}
