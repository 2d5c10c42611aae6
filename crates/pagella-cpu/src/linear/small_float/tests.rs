//! Every code through the decoders of every level. Sums of whole matrices are compared with the scalar
//! twin beside the other formats.

use pagella_formats::small_float::{Number, e4m3, e5m2};

use super::*;
use crate::simd::{Isa, Kernel};

/// All 256 bytes by `load_f8`, then all 16 codes by `lookup` of a table.
struct Every<'a> {
    table: &'a [f32; 16],
}

impl Kernel for Every<'_> {
    type Out = (Vec<f32>, Vec<f32>, Vec<f32>);

    #[inline(always)]
    unsafe fn run<S: Simd>(self) -> Self::Out {
        let bytes: Vec<u8> = (0..=255).collect();
        let (mut three, mut two, mut found) = (vec![0.0; 256], vec![0.0; 256], vec![0.0; 256]);
        // SAFETY: reached through `Isa::run`; every pointer has 16 elements before it ends.
        unsafe {
            let table = S::table(self.table.as_ptr());
            for first in (0..256).step_by(LANES) {
                let p = bytes.as_ptr().add(first);
                S::store(three.as_mut_ptr().add(first), S::load_f8::<3>(p));
                S::store(two.as_mut_ptr().add(first), S::load_f8::<2>(p));
                // Whatever stands above the lowest four bits does not count.
                let codes = S::mul_i(S::load_u8(p), S::splat_i(0x0101_0101));
                S::store(found.as_mut_ptr().add(first), S::lookup(table, codes));
            }
        }
        (three, two, found)
    }
}

#[test]
fn every_byte_and_every_code_has_its_value_on_every_level() {
    let table = *Number::E2m1.table().unwrap();
    for isa in Isa::available() {
        let (three, two, found) = isa.run(Every { table: &table });
        for byte in 0..=255u8 {
            let at = usize::from(byte);
            if byte & 0x7F != 0x7F {
                let value = three[at] * E4M3_FACTOR;
                assert_eq!(value.to_bits(), e4m3(byte).to_bits(), "{byte:x} {}", isa.name());
            }
            if byte & 0x7C != 0x7C {
                assert_eq!(two[at].to_bits(), e5m2(byte).to_bits(), "{byte:x} {}", isa.name());
            }
            let entry = table[usize::from(byte & 15)];
            assert_eq!(found[at].to_bits(), entry.to_bits(), "{byte:x} {}", isa.name());
        }
    }
}
