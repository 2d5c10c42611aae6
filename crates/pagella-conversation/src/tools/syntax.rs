//! How calls of tools are written, as data. The same description says how text is read
//! (`parser`) and what the engine enforces (`grammar`).

/// One piece of the text of calls.
#[derive(Clone, Copy, Debug)]
pub enum Piece {
    /// Exactly this text.
    Text(&'static str),
    /// White space, any or none; this is what is enforced.
    Space(&'static str),
    /// The tool's name.
    Name,
    /// A word that says nothing, such as the number of a call; this pattern is enforced.
    Word(&'static str),
    /// The arguments, a JSON object.
    Json,
    /// An object with name and arguments, under these keys and others that mean the same.
    Object {
        /// Key of the name.
        name: &'static str,
        /// Key of the arguments.
        arguments: &'static str,
        /// What is enforced before the name, as pattern.
        lead: &'static str,
    },
    /// The arguments in tags, up to the tag that ends them.
    Tags(&'static TagStyle),
    /// The arguments as in Python, up to the closing bracket.
    Python,
    /// The arguments as Gemma 4 writes them, brackets included.
    Gemma,
}

/// Arguments in tags, such as `<parameter=city>Paris</parameter>`.
#[derive(Debug)]
pub struct TagStyle {
    /// Before a key.
    pub key_open: &'static str,
    /// Between key and value.
    pub key_close: &'static str,
    /// Before a value, after white space.
    pub value_open: &'static str,
    /// After a value.
    pub value_close: &'static str,
    /// After the last value.
    pub end: &'static str,
    /// Values stand on lines of their own: a line break at either end is not part of them.
    pub lines: bool,
    /// White space that is enforced between tags.
    pub between: &'static str,
}

/// How one format writes calls.
#[derive(Debug)]
pub struct Syntax {
    /// Its name in `tool_format`.
    pub name: &'static str,
    /// Other names.
    pub aliases: &'static [&'static str],
    /// A template writes this format if it contains all texts of one of these lists.
    pub signs: &'static [&'static [&'static str]],
    /// Before the first call.
    pub open: &'static [Piece],
    /// One call.
    pub call: &'static [Piece],
    /// Between calls. Without one, calls follow each other.
    pub separator: Option<&'static str>,
    /// What is enforced between calls, behind the separator.
    pub gap: &'static str,
    /// After the last call.
    pub close: &'static [Piece],
    /// Calls have no mark: only the beginning of an answer can be one, and only of a known tool.
    pub bare: bool,
    /// Ids of calls have nine characters, because the template demands it.
    pub short_ids: bool,
}

impl Syntax {
    /// What other formats differ from.
    pub const PLAIN: Syntax = Syntax {
        name: "",
        aliases: &[],
        signs: &[],
        open: &[],
        call: &[],
        separator: None,
        gap: "",
        close: &[],
        bare: false,
        short_ids: false,
    };

    /// The text that every answer with calls has in front of them.
    pub fn mark(&self) -> Option<&'static str> {
        match self.open.first().or(self.call.first()) {
            Some(Piece::Text(text)) if !self.bare => Some(text),
            _ => None,
        }
    }
}

impl PartialEq for Syntax {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}
