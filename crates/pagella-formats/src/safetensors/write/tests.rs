//! Written files read back, are the same every time, and never appear half-done.

use super::*;
use crate::checkpoint::Checkpoint;

fn tensor<'a>(name: &str, dtype: Dtype, shape: &[usize], data: &'a [u8]) -> TensorData<'a> {
    TensorData { name: name.to_owned(), dtype, shape: shape.to_vec(), data }
}

#[test]
fn written_tensors_read_back_and_are_aligned() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("output.safetensors");
    let tensors = [
        tensor("z.q_groups", Dtype::I16, &[2], &[1, 2, 3, 4]),
        tensor("b\"\\\u{1}ß", Dtype::F32, &[], &[5, 6, 7, 8]),
        tensor("a", Dtype::I32, &[1, 2], &[9; 8]),
        tensor("none", Dtype::F16, &[0, 4], &[]),
    ];
    write_file(&path, &tensors).unwrap();
    let checkpoint = Checkpoint::open_file(&path).unwrap();
    assert_eq!(checkpoint.total_bytes(), 16);
    for wanted in &tensors {
        let found = checkpoint.require(&wanted.name).unwrap();
        assert_eq!(
            (found.dtype, found.shape, found.data),
            (wanted.dtype, &wanted.shape[..], wanted.data)
        );
        let element_bytes = wanted.dtype.bits().unwrap() as usize / 8;
        assert!(
            found.data.as_ptr().addr().is_multiple_of(element_bytes),
            "{} is unaligned",
            wanted.name
        );
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no temporary file is left");
}

#[test]
fn the_bytes_do_not_depend_on_the_order() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (dir.path().join("1.safetensors"), dir.path().join("2.safetensors"));
    let mut tensors = vec![
        tensor("x", Dtype::F16, &[2], &[1, 2, 3, 4]),
        tensor("y", Dtype::I32, &[1], &[5, 6, 7, 8]),
        tensor("w", Dtype::I32, &[1], &[9, 9, 9, 9]),
    ];
    write_file(&one, &tensors).unwrap();
    tensors.reverse();
    write_file(&two, &tensors).unwrap();
    assert_eq!(fs::read(&one).unwrap(), fs::read(&two).unwrap());
}

#[test]
fn what_does_not_fit_its_description_is_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("output.safetensors");
    fs::write(&path, "before").unwrap();
    let good = tensor("x", Dtype::I16, &[1], &[1, 2]);
    for tensors in [
        vec![tensor("x", Dtype::F16, &[3], &[0; 4])],
        vec![tensor("x", Dtype::F16, &[usize::MAX, 4], &[0; 4])],
        vec![tensor("__metadata__", Dtype::F16, &[1], &[0; 2])],
        vec![good.clone(), good],
    ] {
        assert_eq!(write_file(&path, &tensors).unwrap_err().code(), "unwritable");
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), "before");
}

#[test]
fn a_failed_write_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    // A directory in the place of the file: writing succeeds, the rename cannot.
    let path = dir.path().join("output.safetensors");
    fs::create_dir(&path).unwrap();
    fs::write(path.join("inside"), "").unwrap();
    let error = write_file(&path, &[tensor("x", Dtype::I16, &[1], &[1, 2])]).unwrap_err();
    assert_eq!(error.code(), "io");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    let nowhere = dir.path().join("missing").join("output.safetensors");
    assert_eq!(write_file(&nowhere, &[]).unwrap_err().code(), "io");
}
