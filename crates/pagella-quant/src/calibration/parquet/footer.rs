//! What stands at the end of a Parquet file: its columns, and where each of their chunks lies.

use std::io::{Read, Seek, SeekFrom};

use super::Fault;
use super::thrift::{Kind, Thrift};

/// Longest footer.
const FOOTER_MAX: u64 = 64 << 20;

/// Columns, levels of nesting included, that are listed.
const ELEMENTS_MAX: usize = 4096;

/// Chunks that are listed, and runs of rows.
const CHUNKS_MAX: usize = 1 << 20;

/// Longest name of a column, levels of nesting included, in bytes.
const NAME_MAX: usize = 4096;

/// Columns that an error names.
const NAMED_MAX: usize = 8;

/// The physical type of strings.
const BYTE_ARRAY: i64 = 6;

/// A column of strings.
#[derive(Clone, Debug)]
pub(super) struct Column {
    /// Its index among all columns.
    pub index: usize,
    /// Its name, levels of nesting separated by dots.
    pub name: String,
    /// The level that says that there is a value.
    pub definition_max: u32,
    /// Whether it holds one string per record at most.
    is_text: bool,
}

/// Where the values of a column in a run of rows lie.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Chunk {
    /// First byte.
    pub start: u64,
    /// How it is compressed, by Parquet's number.
    pub codec: i64,
    /// Values, missing ones included.
    pub values: u64,
}

/// One node of the schema, in depth-first order.
#[derive(Default)]
struct Element {
    name: String,
    kind: Option<i64>,
    repetition: i64,
    children: u64,
}

/// The column of texts, and its chunks in order.
pub(super) fn read(file: &mut (impl Read + Seek)) -> Result<(Column, Vec<Chunk>), Fault> {
    let io = |error: std::io::Error| format!("cannot read: {error}");
    let bytes = file.seek(SeekFrom::End(0)).map_err(io)?;
    let no_parquet = || "not a Parquet file, or cut short".to_owned();
    let footer_end = bytes.checked_sub(8).ok_or_else(no_parquet)?;
    file.seek(SeekFrom::Start(footer_end)).map_err(io)?;
    let mut tail = [0; 8];
    file.read_exact(&mut tail).map_err(io)?;
    let [a, b, c, d, magic @ ..] = tail;
    if &magic == b"PARE" {
        return Err("encrypted: decrypt it".to_owned());
    }
    let footer_bytes = u64::from(u32::from_le_bytes([a, b, c, d]));
    if &magic != b"PAR1" || footer_bytes > footer_end.min(FOOTER_MAX) {
        return Err(no_parquet());
    }
    file.seek(SeekFrom::Start(footer_end - footer_bytes)).map_err(io)?;
    let mut footer = Vec::new();
    file.take(footer_bytes).read_to_end(&mut footer).map_err(io)?;
    let mut thrift = Thrift::new(footer.as_slice());
    let (mut elements, mut groups) = (Vec::new(), Groups::default());
    thrift.fields(&mut |thrift, number, kind| match number {
        2 => thrift
            .list(kind, &mut |thrift, _| {
                elements.push(element(thrift)?);
                limit(elements.len(), ELEMENTS_MAX)
            })
            .map(|()| true),
        4 => thrift.list(kind, &mut |thrift, _| groups.read(thrift)).map(|()| true),
        _ => Ok(false),
    })?;
    let column = choose(columns(&elements)?)?;
    let chunk = |group: &Vec<Chunk>| {
        let chunk = group.get(column.index).copied();
        chunk.filter(|c| c.start < bytes).ok_or_else(|| "its footer is damaged".to_owned())
    };
    let chunks = groups.chunks.iter().map(chunk).collect::<Result<_, _>>()?;
    Ok((column, chunks))
}

fn limit(count: usize, max: usize) -> Result<(), Fault> {
    if count > max { Err(format!("more than {max} columns or parts")) } else { Ok(()) }
}

fn element<R: Read>(thrift: &mut Thrift<R>) -> Result<Element, Fault> {
    let mut found = Element::default();
    thrift.fields(&mut |thrift, number, kind| {
        match number {
            1 => found.kind = Some(thrift.number(kind)?),
            3 => found.repetition = thrift.number(kind)?,
            4 => found.name = thrift.string(kind)?,
            5 => found.children = thrift.number(kind)?.max(0) as u64,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(found)
}

/// The chunks of every run of rows.
#[derive(Default)]
struct Groups {
    chunks: Vec<Vec<Chunk>>,
    /// Runs and chunks so far.
    count: usize,
}

impl Groups {
    fn read<R: Read>(&mut self, thrift: &mut Thrift<R>) -> Result<(), Fault> {
        let mut chunks = Vec::new();
        thrift.fields(&mut |thrift, number, kind| {
            if number != 1 {
                return Ok(false);
            }
            thrift.list(kind, &mut |thrift, _| {
                chunks.push(column_chunk(thrift)?);
                limit(chunks.len(), ELEMENTS_MAX)
            })?;
            Ok(true)
        })?;
        // A run without chunks takes a byte of the file, and more here.
        self.count += 1 + chunks.len();
        self.chunks.push(chunks);
        limit(self.count, CHUNKS_MAX)
    }
}

fn column_chunk<R: Read>(thrift: &mut Thrift<R>) -> Result<Chunk, Fault> {
    let mut chunk = Chunk::default();
    thrift.fields(&mut |thrift, number, _: Kind| match number {
        1 => Err("its columns are in other files".to_owned()),
        3 => metadata(thrift, &mut chunk).map(|()| true),
        _ => Ok(false),
    })?;
    Ok(chunk)
}

fn metadata<R: Read>(thrift: &mut Thrift<R>, chunk: &mut Chunk) -> Result<(), Fault> {
    let mut starts: [Option<u64>; 2] = [None; 2];
    thrift.fields(&mut |thrift, number, kind| {
        match number {
            4 => chunk.codec = thrift.number(kind)?,
            5 => chunk.values = thrift.number(kind)?.max(0) as u64,
            9 => starts[0] = u64::try_from(thrift.number(kind)?).ok(),
            // Writers without a dictionary have been seen to write 0.
            11 => starts[1] = u64::try_from(thrift.number(kind)?).ok().filter(|at| *at > 0),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    chunk.start = starts.into_iter().flatten().min().unwrap_or(u64::MAX);
    Ok(())
}

/// The columns, which are the leaves of the schema.
fn columns(elements: &[Element]) -> Result<Vec<Column>, Fault> {
    let mut columns = Vec::new();
    // Of every open node: children that are left, name, level, whether repeated.
    let mut open: Vec<(u64, String, u32, bool)> = Vec::new();
    for (at, element) in elements.iter().enumerate() {
        while open.last().is_some_and(|(left, ..)| *left == 0) {
            open.pop();
        }
        let (parent, level, was_repeated) = match open.last_mut() {
            Some((left, name, level, is_repeated)) => {
                *left -= 1;
                (name.clone(), *level, *is_repeated)
            }
            None if at == 0 => (String::new(), 0, false),
            None => return Err("its schema is damaged".to_owned()),
        };
        let name = match parent.is_empty() {
            true => element.name.clone(),
            false => format!("{parent}.{}", element.name),
        };
        if name.len() > NAME_MAX {
            return Err(format!("the name of a column has more than {NAME_MAX} bytes"));
        }
        let level = level + u32::from(at > 0 && element.repetition != 0);
        let is_repeated = was_repeated || element.repetition == 2;
        match element.kind {
            Some(kind) if at > 0 => columns.push(Column {
                index: columns.len(),
                name,
                definition_max: level,
                is_text: kind == BYTE_ARRAY && !is_repeated,
            }),
            _ if open.len() < 64 => {
                // The root has a name that no column bears.
                let name = if at == 0 { String::new() } else { name };
                open.push((element.children, name, level, is_repeated));
            }
            _ => return Err("its columns are nested too deeply".to_owned()),
        }
    }
    Ok(columns)
}

/// The column `text`, or the only one of strings.
fn choose(columns: Vec<Column>) -> Result<Column, Fault> {
    let more = if columns.len() > NAMED_MAX { ", …" } else { "" };
    let named = columns.iter().take(NAMED_MAX);
    let names: Vec<String> = named.map(|c| format!("`{}`", c.name.escape_debug())).collect();
    let mut texts: Vec<Column> = columns.into_iter().filter(|column| column.is_text).collect();
    let named = texts.iter().position(|column| column.name == "text");
    match (named, texts.len()) {
        _ if names.is_empty() => {
            Err("it has no columns: give a file with a column `text`".to_owned())
        }
        (Some(at), _) => Ok(texts.swap_remove(at)),
        (None, 1) => Ok(texts.swap_remove(0)),
        _ => Err(format!(
            "no column `text` among {}{more}: rename the column, or convert the file to JSON lines",
            names.join(", ")
        )),
    }
}

/// An optional column of texts, as [`read`] finds it.
#[cfg(test)]
pub(super) fn column_of_texts() -> Column {
    Column { index: 0, name: "text".to_owned(), definition_max: 1, is_text: true }
}
