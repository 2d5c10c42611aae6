//! Plans of random models over random devices, against all cuts there are.

use super::*;

/// Numbers that look random and are always the same.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n.max(1)
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}

/// A model of some family: layers of one or two shapes, some of them with experts or small caches.
fn model(dice: &mut Dice) -> PartSizes {
    let unit = dice.pick(&[1, 1 << 10, 3 << 20, 500 << 20]);
    let n = 1 + dice.below(24);
    let shapes = 1 + dice.below(3);
    let (usual, kv) = (unit * (1 + dice.below(20)), dice.below(unit + 1));
    let layers = (0..n).map(|_| LayerSizes {
        weights_bytes: usual * (1 + if dice.below(4) == 0 { dice.below(8) } else { 0 }),
        page_bytes: if dice.below(3) == 0 { kv / 8 } else { kv },
        shape: dice.below(shapes) as usize,
        shared_bytes: dice.below(unit),
    });
    PartSizes {
        layers: layers.collect(),
        embedding_bytes: dice.pick(&[0, 3]) * unit,
        shapes_bytes: (0..shapes).map(|_| dice.below(2 * unit)).collect(),
        head_bytes: unit * dice.below(40),
        head_scratch_bytes: dice.below(unit),
        stream_bytes: dice.below(unit),
        rope_page_bytes: dice.below(unit / 50 + 1),
        rope_pages_max: dice.below(300),
    }
}

/// What the parts `from..to` take on one device, from the definition: part `n` is the head.
fn bytes(sizes: &PartSizes, from: usize, to: usize, pages: u64) -> u64 {
    if from == to {
        return 0;
    }
    let n = sizes.layers.len();
    let layers = &sizes.layers[from..to.min(n)];
    let shape = |(index, bytes): (usize, &u64)| {
        if layers.iter().any(|layer| layer.shape == index) { *bytes } else { 0 }
    };
    let head = if to > n { sizes.head_bytes + sizes.head_scratch_bytes } else { 0 };
    layers.iter().map(|layer| layer.weights_bytes + layer.page_bytes * pages).sum::<u64>()
        + sizes.shapes_bytes.iter().enumerate().map(shape).sum::<u64>()
        + layers.iter().map(|layer| layer.shared_bytes).max().unwrap_or(0)
        + if from == 0 { sizes.embedding_bytes } else { 0 }
        + head
        + sizes.stream_bytes
        + sizes.rope_page_bytes * pages.min(sizes.rope_pages_max)
}

/// Whether any cut fits: which parts can be done once a device is used, device after device.
fn any_cut_fits(rooms: &[Room<'_>], pages: u64) -> bool {
    let parts = rooms[0].sizes.layers.len() + 1;
    let mut reached = vec![false; parts + 1];
    reached[0] = true;
    for room in rooms {
        let beside =
            room.beside.weights_bytes + room.beside.scratch_bytes + room.beside.page_bytes * pages;
        let Some(have) = room.free_bytes.saturating_sub(room.reserve_bytes).checked_sub(beside)
        else {
            return false;
        };
        let mut next = vec![false; parts + 1];
        for from in (0..=parts).filter(|from| reached[*from]) {
            for (to, next) in next.iter_mut().enumerate().skip(from) {
                *next |= bytes(room.sizes, from, to, pages) <= have;
            }
        }
        reached = next;
    }
    reached[parts]
}

/// Devices that hold between half and three times the model, unevenly.
fn rooms<'a>(dice: &mut Dice, sizes: &'a PartSizes) -> Vec<Room<'a>> {
    let whole = bytes(sizes, 0, sizes.layers.len() + 1, 4);
    let n = 1 + dice.below(5);
    let room = |index: u64, dice: &mut Dice| {
        let free_bytes = (whole / 100 + 1) * (5 + dice.below(250 / n)) + dice.below(1000);
        let beside = match dice.below(6) {
            0 => Beside {
                weights_bytes: free_bytes / 9,
                scratch_bytes: free_bytes / 99,
                page_bytes: dice.below(free_bytes / 999 + 1),
            },
            _ => Beside::default(),
        };
        let (name, reserve_bytes) = (format!("device {index}"), dice.below(free_bytes / 20 + 1));
        Room { name, free_bytes, reserve_bytes, beside, sizes }
    };
    (0..n).map(|index| room(index, dice)).collect()
}

/// A plan holds what it promises, in every byte.
fn check(placement: &Placement, rooms: &[Room<'_>], pages: u64) {
    let n = rooms[0].sizes.layers.len();
    let (mut at, mut heads) = (0, 0);
    for (part, room) in placement.parts.iter().zip(rooms) {
        if part.is_used() {
            assert_eq!((part.layers.start, part.embeds), (at, at == 0));
            at = part.layers.end;
        }
        heads += usize::from(part.has_head);
        let from = part.layers.start;
        let to = if part.has_head { n + 1 } else { part.layers.end.max(from) };
        let beside =
            room.beside.weights_bytes + room.beside.scratch_bytes + room.beside.page_bytes * pages;
        let own = if part.is_used() { bytes(room.sizes, from, to, pages) } else { 0 };
        assert_eq!(part.bytes(), own + beside);
        assert!(part.bytes() + room.reserve_bytes <= room.free_bytes || part.bytes() == 0);
    }
    assert_eq!((at, heads, placement.parts.len()), (n, 1, rooms.len()));
}

#[test]
fn plans_of_random_models_fit_and_no_cut_has_a_longer_cache() {
    let dice = &mut Dice(16);
    let (mut planned, mut refused, mut split) = (0, 0, 0);
    for _ in 0..1000 {
        let sizes = model(dice);
        let mut rooms = rooms(dice, &sizes);
        let least = 1 + dice.below(40);
        let wanted = PagesWanted { least, most: least + dice.pick(&[0, 30, 5000]) };
        match place(&rooms, wanted, Tail::Rest) {
            Ok(placement) => {
                let pages = (placement.cache_tokens / 256) as u64;
                check(&placement, &rooms, pages);
                assert!((wanted.least..=wanted.most).contains(&pages));
                assert!(pages == wanted.most || !any_cut_fits(&rooms, pages + 1));
                planned += 1;
                split += usize::from(placement.parts.iter().filter(|p| p.is_used()).count() > 1);
            }
            Err(refusal) => {
                assert!(!any_cut_fits(&rooms, least));
                assert_eq!(refusal.cache_tokens as u64, 256 * least);
                let fitting = refusal.fitting_tokens as u64 / 256;
                assert!(fitting < least && (fitting == 0 || any_cut_fits(&rooms, fitting)));
                assert!(!any_cut_fits(&rooms, fitting + 1));
                if rooms.iter().all(|room| room.beside == Beside::default()) {
                    let short = rooms.iter_mut().find(|room| room.name == refusal.device).unwrap();
                    let enough = short.free_bytes.max(short.reserve_bytes) + refusal.missing_bytes;
                    short.free_bytes = enough - 1;
                    assert!(
                        place(&rooms, wanted, Tail::Rest).is_err(),
                        "a byte less is too little"
                    );
                    rooms.iter_mut().find(|r| r.name == refusal.device).unwrap().free_bytes =
                        enough;
                    assert!(
                        place(&rooms, wanted, Tail::Rest).is_ok(),
                        "what was missing is enough"
                    );
                }
                refused += 1;
            }
        }
    }
    assert!(planned > 500 && refused > 100 && split > 250, "{planned} {refused} {split}");
}

/// Ten layers of 10 bytes and a cache of 1 byte per page and layer; the head takes 5.
fn plain() -> PartSizes {
    let layer = LayerSizes { weights_bytes: 10, page_bytes: 1, shape: 0, shared_bytes: 0 };
    PartSizes {
        layers: vec![layer; 10],
        shapes_bytes: vec![0],
        head_bytes: 5,
        ..PartSizes::default()
    }
}

fn room(sizes: &PartSizes, free_bytes: u64) -> Room<'_> {
    let name = format!("{free_bytes} bytes");
    Room { name, free_bytes, reserve_bytes: 0, beside: Beside::default(), sizes }
}

fn layers(placement: &Placement) -> Vec<usize> {
    placement.parts.iter().map(|part| part.layers.len()).collect()
}

#[test]
fn exact_boundaries_fit_and_one_byte_less_does_not() {
    let sizes = plain();
    let one = PagesWanted { least: 1, most: 1 };
    let exact = [room(&sizes, 66), room(&sizes, 44), room(&sizes, 5)];
    let placement = place(&exact, one, Tail::Rest).unwrap();
    assert_eq!(layers(&placement), [6, 4, 0]);
    assert!(placement.parts[2].has_head && placement.parts[2].words() == "head");
    assert_eq!(placement.parts[0].words(), "embedding, layers 0–5");
    let short = [room(&sizes, 65), room(&sizes, 44), room(&sizes, 5)];
    let refusal = place(&short, one, Tail::Rest).unwrap_err();
    assert_eq!((refusal.device.as_str(), refusal.missing_bytes), ("5 bytes", 11));
    assert_eq!((refusal.fitting_tokens, refusal.devices.len()), (0, 3));
    let skipped = [room(&sizes, 3), room(&sizes, 115)];
    assert_eq!(layers(&place(&skipped, one, Tail::Rest).unwrap()), [0, 10]);
    assert!(place(&[], one, Tail::Rest).is_ok_and(|placement| placement.parts.is_empty()));
}

#[test]
fn devices_that_were_to_take_nothing_are_not_asked_for_more() {
    let sizes = plain();
    let one = PagesWanted { least: 1, most: 1 };
    let left_out = [room(&sizes, 0), room(&sizes, 50), room(&sizes, 40), room(&sizes, 0)];
    let refusal = place(&left_out, one, Tail::Rest).unwrap_err();
    let found = (refusal.device.as_str(), refusal.missing_bytes, refusal.devices.len());
    assert_eq!(found, ("40 bytes", 115 - 44 - 40, 2));
    // The CPU behind it takes no layers.
    let behind = [room(&sizes, 60), room(&sizes, 10_000)];
    let refusal = place(&behind, one, Tail::Layers(0)).unwrap_err();
    assert_eq!((refusal.device.as_str(), refusal.devices), ("60 bytes", vec!["60 bytes".into()]));
    let nothing = place(&[room(&sizes, 0)], one, Tail::Rest).unwrap_err();
    assert_eq!((nothing.device.as_str(), nothing.missing_bytes), ("0 bytes", 115));
}

#[test]
fn the_last_device_takes_so_many_layers_or_the_fewest() {
    let sizes = plain();
    let wanted = PagesWanted { least: 2, most: 100 };
    let rooms = [room(&sizes, 60), room(&sizes, 40), room(&sizes, 10_000)];
    let with = |tail| place(&rooms, wanted, tail);
    // 12 bytes a layer: five and three fit.
    let fewest = with(Tail::Fewest).unwrap();
    assert_eq!((layers(&fewest), fewest.cache_tokens), (vec![5, 3, 2], 2 * 256));
    let four = with(Tail::Layers(4)).unwrap();
    assert_eq!((layers(&four), four.cache_tokens), (vec![4, 2, 4], 5 * 256));
    assert_eq!(with(Tail::Layers(1)).unwrap_err().device, "40 bytes");
    let all = with(Tail::Layers(10)).unwrap();
    assert_eq!((layers(&all), all.cache_tokens), (vec![0, 0, 10], 100 * 256));
    let none = [room(&sizes, 200), room(&sizes, 10_000)];
    let whole = place(&none, wanted, Tail::Fewest).unwrap();
    assert_eq!(layers(&whole), [10, 0]);
    assert!(whole.parts[0].has_head && !whole.parts[1].is_used());
    let rest = with(Tail::Rest).unwrap();
    assert_eq!(
        (layers(&rest), rest.cache_tokens),
        (vec![0, 0, 10], 100 * 256),
        "the longest cache"
    );
}
