//! One row of the table of operations: what is said about a route.

use crate::fields::Param;

/// A parameter behind the question mark.
#[derive(Clone, Copy)]
pub struct Query {
    pub name: &'static str,
    pub about: &'static str,
    /// JSON.
    pub schema: &'static str,
    /// It must be there.
    pub required: bool,
}

/// The body of a request.
#[derive(Clone, Copy)]
pub struct Body {
    /// The name of its schema.
    pub name: &'static str,
    /// What it is read with.
    pub tables: &'static [&'static [Param]],
    /// Fields that must be there.
    pub required: &'static [&'static str],
    /// The body as a whole may be left out.
    pub optional: bool,
}

/// What a route answers when all is well.
#[derive(Clone, Copy)]
pub enum Answer {
    /// JSON, of the schema of this name.
    Json(&'static str),
    /// Something else, of these types.
    Other(&'static [&'static str]),
    /// Another protocol, on the same connection.
    Upgrade,
}

/// What is said about a route.
#[derive(Clone, Copy)]
pub struct Operation {
    pub method: &'static str,
    pub path: &'static str,
    pub tag: &'static str,
    /// The name of the function in generated clients.
    pub id: &'static str,
    pub summary: &'static str,
    pub body: Option<Body>,
    pub query: &'static [Query],
    pub answer: Answer,
    /// The schema of one event, where the answer can be a stream.
    pub events: Option<&'static str>,
    /// The schema of one line, where the answer can be a stream of lines.
    pub lines: Option<&'static str>,
    /// Statuses beyond those that follow from the route's row.
    pub also: &'static [u16],
}

/// A route without a body that answers with JSON.
pub const fn op(
    (method, path): (&'static str, &'static str),
    (tag, id): (&'static str, &'static str),
    summary: &'static str,
    answer: &'static str,
) -> Operation {
    let (query, also): (&[Query], &[u16]) = (&[], &[]);
    let (answer, body, events, lines) = (Answer::Json(answer), None, None, None);
    Operation { method, path, tag, id, summary, body, query, answer, events, lines, also }
}

impl Operation {
    /// Reads a body with these tables.
    pub const fn body(
        mut self,
        name: &'static str,
        tables: &'static [&'static [Param]],
        required: &'static [&'static str],
    ) -> Self {
        self.body = Some(Body { name, tables, required, optional: false });
        self
    }

    /// The body may be left out.
    pub const fn optional(mut self) -> Self {
        if let Some(mut body) = self.body {
            body.optional = true;
            self.body = Some(body);
        }
        self
    }

    /// Can answer piece by piece.
    pub const fn events(mut self, schema: &'static str) -> Self {
        self.events = Some(schema);
        self
    }

    /// Can answer line by line.
    pub const fn lines(mut self, schema: &'static str) -> Self {
        self.lines = Some(schema);
        self
    }

    /// Reads these parameters behind the question mark.
    pub const fn query(mut self, query: &'static [Query]) -> Self {
        self.query = query;
        self
    }

    /// Answers with something that is not JSON.
    pub const fn kinds(mut self, kinds: &'static [&'static str]) -> Self {
        self.answer = Answer::Other(kinds);
        self
    }

    /// Goes on in another protocol.
    pub const fn upgrades(mut self) -> Self {
        self.answer = Answer::Upgrade;
        self
    }

    /// Can also answer with these statuses.
    pub const fn also(mut self, statuses: &'static [u16]) -> Self {
        self.also = statuses;
        self
    }
}
