//! One row of the table of routes: who may ask, what is read, what answers, and what is said about it.

use std::pin::Pin;

use schemars::{Schema, SchemaGenerator};

use crate::call::{Call, Reply};
use crate::fields::Body;
use crate::settings::ApiServer;
use crate::wire::error::{ApiError, Dialect};

/// Statuses of routes that need a model.
pub const MODEL: &[u16] = &[404, 503];
/// Statuses of routes that let it write.
pub const GENERATE: &[u16] = &[404, 503, 504];

/// Who may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Everyone.
    Public,
    /// Every valid key.
    Api,
    /// Keys of administrators.
    Admin,
    /// Everyone on this machine; from other machines, keys of administrators.
    Metrics,
    /// Everyone, unless the operator chose otherwise.
    Docs,
}

impl Access {
    /// What it comes to on an address that only this machine reaches, or on another.
    pub fn here(self, loopback: bool) -> Access {
        match self {
            Access::Metrics if loopback => Access::Public,
            Access::Metrics => Access::Admin,
            Access::Docs => Access::Public,
            other => other,
        }
    }
}

/// What body a route reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyRule {
    /// None.
    None,
    /// A small one.
    Small,
    /// One with conversations in it.
    Generation,
}

/// What answers.
pub type Handler<A> = fn(Call<A>) -> Pin<Box<dyn Future<Output = Result<Reply, ApiError>> + Send>>;

/// The body of a request.
#[derive(Clone, Copy)]
pub struct BodySchema {
    /// How large it may be.
    pub rule: BodyRule,
    /// The name of its schema.
    pub name: &'static str,
    /// The descriptions of its parts.
    pub parts: fn(&mut SchemaGenerator) -> Vec<Schema>,
    /// The body as a whole may be left out.
    pub optional: bool,
}

/// A parameter behind the question mark.
#[derive(Clone, Copy)]
pub struct Query {
    /// Its name.
    pub name: &'static str,
    /// What it is for.
    pub about: &'static str,
    /// JSON.
    pub schema: &'static str,
    /// It must be there.
    pub required: bool,
}

/// What a route answers when all is well.
#[derive(Clone, Copy)]
pub enum AnswerKind {
    /// JSON, of the schema of this name.
    Json(&'static str),
    /// Something else, of these types.
    Other(&'static [&'static str]),
    /// Another protocol, on the same connection.
    Upgrade,
}

/// One row.
pub struct Route<A: 'static> {
    /// Method.
    pub method: &'static str,
    /// Path; `{…}` stands for one segment.
    pub path: &'static str,
    /// Who may ask.
    pub access: Access,
    /// What is read.
    pub body: Option<BodySchema>,
    /// How its errors look.
    pub dialect: Dialect,
    /// What answers.
    pub handler: Handler<A>,
    family: Option<ApiServer>,
    /// The group that it is described in.
    pub tag: &'static str,
    /// The name of the function in generated clients.
    pub id: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// What may stand behind the question mark.
    pub query: &'static [Query],
    /// What it answers when all is well.
    pub answer: AnswerKind,
    /// The schema of one event, where the answer can be a stream.
    pub events: Option<&'static str>,
    /// The schema of one line, where the answer can be a stream of lines.
    pub lines: Option<&'static str>,
    /// Statuses beyond those that follow from the rest.
    pub also: &'static [u16],
}

/// A handler as rows have it.
#[macro_export]
macro_rules! to {
    ($handler:path) => {
        |call| Box::pin($handler(call))
    };
}
pub use crate::to;

/// A row for `GET`.
pub const fn get<A>(path: &'static str, access: Access, handler: Handler<A>) -> Route<A> {
    route("GET", path, access, handler)
}

/// A row for `POST`.
pub const fn post<A>(path: &'static str, access: Access, handler: Handler<A>) -> Route<A> {
    route("POST", path, access, handler)
}

/// A row for `PUT`.
pub const fn put<A>(path: &'static str, access: Access, handler: Handler<A>) -> Route<A> {
    route("PUT", path, access, handler)
}

/// A row for `DELETE`.
pub const fn delete<A>(path: &'static str, access: Access, handler: Handler<A>) -> Route<A> {
    route("DELETE", path, access, handler)
}

const fn route<A>(
    method: &'static str,
    path: &'static str,
    access: Access,
    handler: Handler<A>,
) -> Route<A> {
    Route {
        method,
        path,
        access,
        body: None,
        dialect: Dialect::OpenAi,
        handler,
        family: None,
        tag: "",
        id: "",
        summary: "",
        query: &[],
        answer: AnswerKind::Other(&[]),
        events: None,
        lines: None,
        also: &[],
    }
}

/// Rows of a family that the operator chooses, whose errors look alike.
pub const fn of_family<A, const N: usize>(
    family: ApiServer,
    dialect: Dialect,
    mut routes: [Route<A>; N],
) -> [Route<A>; N] {
    let mut idx = 0;
    while idx < N {
        routes[idx].dialect = dialect;
        routes[idx] = routes[idx].of(family);
        idx += 1;
    }
    routes
}

/// Lists as one.
pub const fn joined<A, const N: usize>(lists: &[&[Route<A>]]) -> [Route<A>; N] {
    let mut all = [lists[0][0]; N];
    let (mut list, mut filled) = (0, 0);
    while list < lists.len() {
        let mut idx = 0;
        while idx < lists[list].len() {
            all[filled] = lists[list][idx];
            (idx, filled) = (idx + 1, filled + 1);
        }
        list += 1;
    }
    all
}

/// How many rows lists have.
pub const fn count<A>(lists: &[&[Route<A>]]) -> usize {
    let (mut list, mut n) = (0, 0);
    while list < lists.len() {
        n += lists[list].len();
        list += 1;
    }
    n
}

impl<A> Clone for Route<A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A> Copy for Route<A> {}

impl<A> Route<A> {
    /// Method and path.
    pub fn labels(&self) -> (&'static str, &'static str) {
        (self.method, self.path)
    }

    /// The family of routes that it belongs to, if it is one that the operator chooses.
    pub fn family(&self) -> Option<ApiServer> {
        self.family
    }

    /// What body it reads.
    pub fn body_rule(&self) -> BodyRule {
        self.body.map_or(BodyRule::None, |body| body.rule)
    }

    /// Belongs to a family.
    pub const fn of(mut self, family: ApiServer) -> Self {
        self.family = Some(family);
        self
    }

    /// Its errors look like those of TabbyAPI.
    pub const fn tabby(mut self) -> Self {
        self.dialect = Dialect::Tabby;
        self
    }

    /// What is said about it.
    pub const fn doc(mut self, tag: &'static str, id: &'static str, summary: &'static str) -> Self {
        (self.tag, self.id, self.summary) = (tag, id, summary);
        self
    }

    /// Reads a body, whose description has this name.
    pub const fn body<B: Body>(mut self, rule: BodyRule, name: &'static str) -> Self {
        self.body = Some(BodySchema { rule, name, parts: B::schemas, optional: false });
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

    /// Reads these parameters behind the question mark.
    pub const fn query(mut self, query: &'static [Query]) -> Self {
        self.query = query;
        self
    }

    /// Answers with JSON of this schema.
    pub const fn json(mut self, schema: &'static str) -> Self {
        self.answer = AnswerKind::Json(schema);
        self
    }

    /// Answers with something that is not JSON.
    pub const fn kinds(mut self, kinds: &'static [&'static str]) -> Self {
        self.answer = AnswerKind::Other(kinds);
        self
    }

    /// Goes on in another protocol.
    pub const fn upgrades(mut self) -> Self {
        self.answer = AnswerKind::Upgrade;
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

    /// Can also answer with these statuses.
    pub const fn also(mut self, statuses: &'static [u16]) -> Self {
        self.also = statuses;
        self
    }
}
