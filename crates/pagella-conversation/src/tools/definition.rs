//! The tools of a request, and which of them may or must be called.

use std::collections::BTreeSet;

use pagella_engine::constraint::{ConstraintLimits, InputRule};
use serde_json::{Map, Value, json};

use super::custom;
use super::schema::{closed, kept};
use crate::error::{ConversationError, Problem};

/// Bytes of the JSON of all tools, at most.
const TOOLS_BYTES_MAX: usize = 1 << 20;
/// Longest name.
pub const NAME_BYTES_MAX: usize = 128;

/// Something that the model can ask to be done.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// What it is good for.
    pub description: Option<String>,
    /// Schema of its arguments; an object that says nothing where the client said nothing.
    pub parameters: Value,
    /// A schema that cannot be enforced whole is refused.
    pub strict: bool,
    /// Set where it takes a text, which is its one argument.
    pub input: Option<TextInput>,
    /// What is enforced of the schema.
    pub enforced: Value,
}

/// The text that a custom tool takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextInput {
    /// What it must look like, if something is said.
    pub rule: Option<InputRule>,
}

/// What may be called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The model decides.
    #[default]
    Auto,
    /// Nothing is called.
    None,
    /// Something is called.
    Required,
}

/// All tools of a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolSet {
    /// As the client listed them.
    pub tools: Vec<Tool>,
    /// Whether they are called.
    pub mode: Mode,
    /// Which of them may be called; `None` is all.
    pub allowed: Option<BTreeSet<String>>,
    /// Several calls in one answer.
    pub parallel: bool,
    /// What of the schemas is not enforced, as clients are told.
    pub unenforced: Vec<String>,
}

/// Whether a text has the form of a name.
pub fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b))
}

/// Tools as OpenAI writes them, each of which may be absent.
#[derive(Clone, Copy, Debug, Default)]
pub struct WrittenTools<'a> {
    /// `tools`.
    pub tools: Option<&'a Value>,
    /// `functions`, their old name.
    pub functions: Option<&'a Value>,
    /// `tool_choice`.
    pub tool_choice: Option<&'a Value>,
    /// `function_call`, its old name.
    pub function_call: Option<&'a Value>,
    /// `parallel_tool_calls`.
    pub parallel: Option<bool>,
}

impl ToolSet {
    /// Tools that the model calls or does not, as it decides.
    pub fn new(tools: Vec<Tool>, parallel: bool) -> Self {
        ToolSet { tools, parallel, ..ToolSet::default() }
    }

    /// Reads and checks what was written; empty where there are no tools, of which there may be `most`.
    pub fn read(written: &WrittenTools<'_>, most: usize) -> Result<Self, ConversationError> {
        let tools = match (written.tools, written.functions) {
            (Some(_), Some(_)) => {
                let message = "functions is the old name of tools: give one of them";
                return Err(ConversationError::new(Problem::Conflict, "functions", message));
            }
            (Some(list), None) => Some((list, "tools")),
            (None, Some(list)) => Some((list, "functions")),
            (None, None) => None,
        };
        let tool = |path: &str, value: &Value| Tool::read(path, value).map(Some);
        let tools =
            tools.map(|(list, path)| Tool::read_list(path, list, most, tool)).transpose()?;
        let parallel = written.parallel.unwrap_or(true);
        let mut set = ToolSet::new(tools.unwrap_or_default(), parallel);
        if let Some(choice) = written.tool_choice {
            set.choose("tool_choice", choice)?;
        } else if let Some(call) = written.function_call {
            set.choose("function_call", call)?;
        }
        Ok(set)
    }

    /// Decides what is enforced of each schema: of a strict one everything, of others what can be.
    pub fn enforce(&mut self, limits: &ConstraintLimits) {
        for tool in &mut self.tools {
            let (schema, dropped) = match tool.strict {
                true => (tool.parameters.clone(), Vec::new()),
                false => kept(&tool.name, &tool.parameters, limits),
            };
            tool.enforced = closed(&schema);
            self.unenforced.extend(dropped);
        }
    }

    /// Leaves it to the model whether something is called, and what.
    pub fn decide_freely(&mut self) {
        if self.mode == Mode::Required {
            (self.mode, self.allowed) = (Mode::Auto, None);
        }
    }

    /// Whether there are no tools.
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// The tool of this name.
    pub fn find(&self, name: &str) -> Option<&Tool> {
        self.tools.iter().find(|tool| tool.name == name)
    }

    /// The schema of one argument.
    pub fn property(&self, tool: &str, key: &str) -> Option<&Value> {
        self.find(tool)?.parameters.get("properties")?.get(key)
    }

    /// Tools that may be called.
    pub fn callable(&self) -> impl Iterator<Item = &Tool> {
        let allowed = |tool: &&Tool| match &self.allowed {
            Some(names) => names.contains(&tool.name),
            None => true,
        };
        self.tools.iter().filter(allowed)
    }

    /// The tools as templates read them.
    pub fn for_template(&self) -> Value {
        let tool = |tool: &Tool| {
            let mut function = Map::new();
            function.insert("name".into(), tool.name.as_str().into());
            // Templates read both without asking whether they are there.
            let description = tool.description.as_deref().unwrap_or_default();
            let description = match &tool.input {
                Some(input) => custom::described(description, input),
                None => description.to_owned(),
            };
            function.insert("description".into(), description.into());
            function.insert("parameters".into(), tool.parameters.clone());
            json!({ "type": "function", "function": function })
        };
        self.tools.iter().map(tool).collect()
    }

    /// Chooses as chats write it: a word, a tool, or several that are allowed.
    pub fn choose(&mut self, path: &str, choice: &Value) -> Result<(), ConversationError> {
        let name = named(choice);
        match (choice, choice.get("type").and_then(Value::as_str)) {
            (Value::String(word), _) => self.choose_mode(path, mode(path, word)?),
            (Value::Object(_), Some("allowed_tools")) => {
                let inner = choice.get("allowed_tools").unwrap_or(choice);
                let word = inner.get("mode").and_then(Value::as_str).unwrap_or("auto");
                let mode = mode(&format!("{path}.mode"), word)?;
                let tools_path = format!("{path}.tools");
                let Some(Value::Array(list)) = inner.get("tools") else {
                    return Err(ConversationError::wrong_type(tools_path, "a list of tools"));
                };
                let known = |tool: &Value| self.known(&tools_path, named(tool));
                self.allowed = Some(list.iter().map(known).collect::<Result<_, _>>()?);
                self.choose_mode(path, mode)
            }
            (Value::Object(_), Some("function" | "custom") | None) if name.is_some() => {
                self.choose_tool(&format!("{path}.function.name"), name)
            }
            _ => {
                let expected = "none, auto, required, or an object that names a function";
                Err(ConversationError::wrong_type(path, expected))
            }
        }
    }

    /// Lets something be called, or must, or nothing.
    pub fn choose_mode(&mut self, path: &str, mode: Mode) -> Result<(), ConversationError> {
        self.mode = mode;
        if mode == Mode::Required && self.callable().next().is_none() {
            let message = format!("{path} asks for a call and there are no tools: give tools");
            return Err(ConversationError::new(Problem::Missing, "tools", message));
        }
        Ok(())
    }

    /// Lets one tool be called, by its name.
    pub fn choose_tool(
        &mut self,
        path: &str,
        name: Option<&Value>,
    ) -> Result<(), ConversationError> {
        self.allowed = Some(BTreeSet::from([self.known(path, name)?]));
        self.mode = Mode::Required;
        // Who names a tool waits for one call of it.
        self.parallel = false;
        Ok(())
    }

    fn known(&self, path: &str, name: Option<&Value>) -> Result<String, ConversationError> {
        let name = name
            .and_then(Value::as_str)
            .ok_or_else(|| ConversationError::wrong_type(path, "a name"))?;
        if self.find(name).is_none() {
            let message = format!("{path} names a function that is not among the tools: add it");
            return Err(ConversationError::new(Problem::UnknownValue, path, message));
        }
        Ok(name.to_owned())
    }
}

/// The name in a choice of a tool, wrapped or not.
fn named(choice: &Value) -> Option<&Value> {
    let inner = |key: &str| choice.get(key)?.get("name");
    choice.get("name").or_else(|| inner("function")).or_else(|| inner("custom"))
}

fn mode(path: &str, word: &str) -> Result<Mode, ConversationError> {
    match word {
        "auto" => Ok(Mode::Auto),
        "none" => Ok(Mode::None),
        "required" | "any" => Ok(Mode::Required),
        _ => {
            let message = format!("{path} must be none, auto or required");
            Err(ConversationError::new(Problem::UnknownValue, path, message))
        }
    }
}

impl Tool {
    /// Reads a list of tools, of which there may be `most`. `read` gives nothing for a tool that is left
    /// out.
    pub fn read_list<E: From<ConversationError>>(
        path: &str,
        list: &Value,
        most: usize,
        mut read: impl FnMut(&str, &Value) -> Result<Option<Tool>, E>,
    ) -> Result<Vec<Tool>, E> {
        let Value::Array(list) = list else {
            return Err(ConversationError::wrong_type(path, "a list of tools").into());
        };
        let bytes = serde_json::to_string(list).map_or(usize::MAX, |text| text.len());
        if list.len() > most || bytes > TOOLS_BYTES_MAX {
            let allowed = format!("at most {most} tools, {TOOLS_BYTES_MAX} bytes");
            return Err(ConversationError::out_of_range(path, &allowed).into());
        }
        let mut tools: Vec<Tool> = Vec::with_capacity(list.len());
        for (idx, value) in list.iter().enumerate() {
            let path = format!("{path}[{idx}]");
            let Some(tool) = read(&path, value)? else { continue };
            if tools.iter().any(|other| other.name == tool.name) {
                let message = format!("{path} has the name of another tool: give it its own");
                return Err(ConversationError::new(Problem::Conflict, path, message).into());
            }
            tools.push(tool);
        }
        Ok(tools)
    }

    /// Reads `{"type": "function", "function": {…}}`, the same with `custom`, or what is inside it.
    pub fn read(path: &str, value: &Value) -> Result<Self, ConversationError> {
        let Value::Object(outer) = value else {
            return Err(ConversationError::wrong_type(path, "an object"));
        };
        let kind = match outer.get("type").filter(|kind| !kind.is_null()) {
            None => "function",
            Some(Value::String(kind)) if kind == "function" || kind == "custom" => kind.as_str(),
            Some(_) => {
                let message = format!("{path}.type must be function or custom: no others run here");
                let path = format!("{path}.type");
                return Err(ConversationError::new(Problem::UnknownValue, path, message));
            }
        };
        let (path, inner) = match outer.get(kind) {
            Some(Value::Object(inner)) => (format!("{path}.{kind}"), inner),
            Some(_) => {
                return Err(ConversationError::wrong_type(format!("{path}.{kind}"), "an object"));
            }
            None => (path.to_owned(), outer),
        };
        let tool = Self::function(&path, inner, "parameters")?;
        if kind == "function" {
            return Ok(tool);
        }
        let input = custom::input(&path, inner.get("format").filter(|value| !value.is_null()))?;
        let parameters = custom::parameters();
        let enforced = parameters.clone();
        Ok(Tool { input: Some(input), parameters, enforced, ..tool })
    }

    /// Reads a function whose schema is in the field `schema`.
    pub fn function(
        path: &str,
        function: &Map<String, Value>,
        schema: &str,
    ) -> Result<Self, ConversationError> {
        let wrong = |key: &str, expected: &str| {
            Err(ConversationError::wrong_type(format!("{path}.{key}"), expected))
        };
        let given = |key: &str| function.get(key).filter(|value| !value.is_null());
        let name = match given("name") {
            None => return Err(ConversationError::missing(format!("{path}.name"))),
            Some(Value::String(name)) => name.clone(),
            Some(_) => return wrong("name", "a string"),
        };
        if !is_name(&name) || name.len() > NAME_BYTES_MAX {
            let allowed = format!("1 to {NAME_BYTES_MAX} letters, digits, '_', '.' and '-'");
            return Err(ConversationError::out_of_range(format!("{path}.name"), &allowed));
        }
        let description = match given("description") {
            None => None,
            Some(Value::String(text)) => Some(text.clone()),
            Some(_) => return wrong("description", "a string"),
        };
        let parameters = match given(schema) {
            None => json!({ "type": "object", "properties": {} }),
            Some(schema @ Value::Object(_)) => schema.clone(),
            Some(_) => return wrong(schema, "a JSON schema"),
        };
        let strict = match given("strict") {
            None => false,
            Some(Value::Bool(strict)) => *strict,
            Some(_) => return wrong("strict", "true or false"),
        };
        let enforced = parameters.clone();
        Ok(Tool { name, description, parameters, strict, input: None, enforced })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOOLS_MAX: usize = 16;

    fn read(body: Value) -> Result<ToolSet, ConversationError> {
        let given = |name: &str| body.get(name).filter(|value| !value.is_null());
        let written = WrittenTools {
            tools: given("tools"),
            functions: given("functions"),
            tool_choice: given("tool_choice"),
            function_call: given("function_call"),
            parallel: given("parallel_tool_calls").and_then(Value::as_bool),
        };
        ToolSet::read(&written, TOOLS_MAX)
    }

    fn named(name: &str) -> Value {
        json!({"type": "function", "function": {"name": name}})
    }

    #[test]
    fn choices_say_what_may_be_called() {
        let tools = json!([named("a"), named("b")]);
        let check = |choice: Value, mode: Mode, callable: &[&str]| {
            let set = read(json!({"tools": tools, "tool_choice": choice})).unwrap();
            let names: Vec<&str> = set.callable().map(|tool| tool.name.as_str()).collect();
            assert_eq!((set.mode, names.as_slice()), (mode, callable), "{choice}");
        };
        check(Value::Null, Mode::Auto, &["a", "b"]);
        check(json!("none"), Mode::None, &["a", "b"]);
        check(json!("required"), Mode::Required, &["a", "b"]);
        check(named("b"), Mode::Required, &["b"]);
        check(json!({"type": "function", "name": "a"}), Mode::Required, &["a"]);
        let allowed = json!({"mode": "required", "tools": [named("a")]});
        check(json!({"type": "allowed_tools", "allowed_tools": allowed}), Mode::Required, &["a"]);
        let old = read(json!({"functions": [{"name": "f"}], "function_call": {"name": "f"}}));
        assert_eq!(old.unwrap().mode, Mode::Required);
    }

    #[test]
    fn a_named_tool_is_called_once() {
        for choice in [
            named("a"),
            json!({"type": "function", "name": "a"}),
            json!({"name": "a"}),
            json!({"type": "custom", "custom": {"name": "b"}}),
        ] {
            let tools = json!([named("a"), {"type": "custom", "custom": {"name": "b"}}]);
            let body = json!({"tools": tools, "tool_choice": choice, "parallel_tool_calls": true});
            assert!(!read(body).unwrap().parallel, "{choice}");
        }
        assert!(read(json!({"tools": [named("a")], "tool_choice": "required"})).unwrap().parallel);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let refused = |body: Value| read(body).err().unwrap().path;
        assert_eq!(refused(json!({"tools": 5})), "tools");
        assert_eq!(refused(json!({"tools": [{"type": "web_search"}]})), "tools[0].type");
        assert_eq!(refused(json!({"tools": [named("a b")]})), "tools[0].function.name");
        assert_eq!(refused(json!({"tools": [named("a"), named("a")]})), "tools[1]");
        assert_eq!(refused(json!({"tool_choice": "required"})), "tools");
        assert_eq!(refused(json!({"tool_choice": "sometimes"})), "tool_choice");
        assert_eq!(
            refused(json!({"tools": [named("a")], "tool_choice": named("b")})),
            "tool_choice.function.name"
        );
        let many = |n: usize| -> Vec<Value> { (0..n).map(|i| named(&format!("f{i}"))).collect() };
        assert_eq!(refused(json!({"tools": many(TOOLS_MAX + 1)})), "tools");
        assert_eq!(read(json!({"tools": many(TOOLS_MAX)})).unwrap().tools.len(), TOOLS_MAX);
    }
}
