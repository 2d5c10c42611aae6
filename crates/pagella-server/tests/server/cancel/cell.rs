//! One place of the matrix: a request that is brought to a phase and ended, and one that stays.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pagella_backend::StepPlan;
use serde_json::{Value, json};

use super::scene::{Books, Scene, finished, texts};
use super::{ANSWER_TOKENS, CHAT, COMPLETIONS, PROMPT_TOKENS, Phase, Shape};
use crate::line::{Asked, Way};
use crate::support::{ADMIN, API, OTHER, wait_for};

/// Rows of the request that ends, in a step: its prompt is longer than all of the other's request.
fn long_rows(plan: &StepPlan) -> Vec<(usize, usize)> {
    let rows = (0..plan.rows()).map(|row| (plan.past(row), plan.token_range(row).len()));
    rows.filter(|(past, len)| past + len > 100 || *len > 60).collect()
}

/// One place of the matrix.
pub struct Cell<'a> {
    pub scene: &'a Scene,
    pub phase: Phase,
    pub way: Way,
    pub shape: Shape,
    /// The request that ends.
    body: Value,
}

impl<'a> Cell<'a> {
    pub fn new(scene: &'a Scene, phase: Phase, way: Way, shape: Shape) -> Self {
        let mut cell = Cell { scene, phase, way, shape, body: Value::Null };
        cell.body = cell.make_body();
        cell
    }

    fn id(&self) -> String {
        format!("{:?}-{:?}-{:?}", self.phase, self.way, self.shape)
    }

    fn path(&self) -> &'static str {
        if self.phase == Phase::Template { CHAT } else { COMPLETIONS }
    }

    fn make_body(&self) -> Value {
        let prompt: Vec<usize> = (0..PROMPT_TOKENS).map(|i| 5 + i % 200).collect();
        let mut body = json!({
            "prompt": prompt, "max_tokens": ANSWER_TOKENS, "ban_eos_token": true,
            "temperature": 0, "stream": self.shape != Shape::Plain,
        });
        if self.shape == Shape::Four {
            body["n"] = 4.into();
        }
        match self.phase {
            Phase::Template => {
                body.as_object_mut().unwrap().remove("prompt");
                body["messages"] = json!([{"role": "user", "content": "What is an array?"}]);
            }
            Phase::Compile => {
                // A new one each time: what was compiled is remembered.
                body["regex_pattern"] = format!("[a-z ]{{300}}({})?", self.id()).into();
            }
            Phase::Constrained => body["regex_pattern"] = "[a-z ]{300}".into(),
            Phase::Rewind => {
                let greedy = self.scene.alone(COMPLETIONS, &body);
                let greedy = serde_json::from_str::<Vec<String>>(&greedy).unwrap();
                let said: String = greedy[0].chars().skip(6).take(8).collect();
                body["banned_strings"] = json!([said]);
            }
            // More than a window of HTTP/2, whether or not it fits into sockets.
            Phase::Unwritten => {
                let prompt: Vec<usize> = (0..120).map(|i| 5 + i % 200).collect();
                let list = body["n"] != 4;
                body["prompt"] = if list { json!(vec![prompt; 4]) } else { json!(prompt) };
                let extra = json!({"max_tokens": 1, "echo": true, "logprobs": 20});
                body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            }
            _ => {}
        }
        body
    }

    /// The request of someone who stays.
    fn other(&self) -> Value {
        if self.shape == Shape::Twins {
            return self.body.clone();
        }
        json!({"prompt": "The `map()` method", "max_tokens": ANSWER_TOKENS, "ban_eos_token": true,
            "temperature": 0})
    }

    /// Brings the request to its phase, ends it, and looks at what is left.
    pub fn play(&self) {
        let scene = self.scene;
        let mut other = self.other();
        let path = if other.get("messages").is_some() { CHAT } else { COMPLETIONS };
        let alone = scene.alone(path, &other);
        other["stream"] = false.into();
        scene.line.ask(ADMIN, "/v1/cache/clear", Some(&json!({}))).good();
        let before = scene.books();
        let finished = finished(&scene.server);
        std::thread::scope(|scope| {
            let ask = || scope.spawn(|| texts(&scene.line.ask(OTHER, path, Some(&other)).good()));
            let (asked, stays) = match self.phase {
                Phase::Template | Phase::Compile => self.while_prepared(scope, ask),
                Phase::Unwritten => self.when_finished(finished, ask),
                _ => self.in_engine(ask),
            };
            assert_eq!(stays.join().unwrap(), alone, "{}", self.id());
            if let Some(asked) = asked {
                self.check_answer(asked);
            }
        });
        scene.server.wait_idle();
        // What had finished is an answer; how much of it was on its way is the connection's business.
        if self.phase == Phase::Unwritten && self.way != Way::Cancel {
            wait_for("both to be written down", || scene.books().in_flight == 0);
            let books = scene.books();
            assert_eq!(books.answered + books.left, before.answered + before.left + 2);
            return;
        }
        let mut expected = Books { answered: before.answered + 1, ..before };
        match self.way {
            Way::Cancel => expected.answered += 1,
            _ => (expected.left, expected.cancelled) = (before.left + 1, before.cancelled + 1),
        }
        if self.way == Way::Cancel && self.phase != Phase::Unwritten {
            expected.asked += 1;
        }
        scene.wait_books(&self.id(), &expected);
    }

    fn begin(&self) -> Box<dyn Asked> {
        self.scene.line.begin(&self.id(), API, self.path(), &self.body)
    }

    /// Ends the request; returns it if its client reads on.
    fn end(&self, asked: Box<dyn Asked>) -> Option<Box<dyn Asked>> {
        if self.way == Way::Cancel {
            let path = format!("/v1/requests/{}/cancel", self.id());
            let told = self.scene.line.ask(API, &path, Some(&json!({}))).good();
            assert_eq!(told["cancelled"], true);
            return Some(asked);
        }
        asked.leave(self.way);
        wait_for(&format!("{} to be noticed", self.id()), || {
            self.scene.listed(&self.id()).is_none()
        });
        None
    }

    /// An answer that was ended by asking ends well.
    fn check_answer(&self, asked: Box<dyn Asked>) {
        let answer = asked.answer();
        assert_eq!(answer.status, 200, "{}: {}", self.id(), answer.text());
        if self.phase == Phase::Unwritten {
            return;
        }
        let n = if self.shape == Shape::Four { 4 } else { 1 };
        let ended = answer.text().matches("\"eos_reason\":\"cancelled\"").count();
        assert_eq!(ended, n, "{}: {}", self.id(), answer.text());
    }
}

type Stays<'s> = std::thread::ScopedJoinHandle<'s, String>;
type Ended<'s> = (Option<Box<dyn Asked>>, Stays<'s>);

impl Cell<'_> {
    /// The thread that renders and compiles is held. Whoever stays waits for it, too.
    fn while_prepared<'s>(
        &'s self,
        scope: &'s std::thread::Scope<'s, '_>,
        ask: impl Fn() -> Stays<'s>,
    ) -> Ended<'s> {
        let (scene, id) = (self.scene, self.id());
        let mut held = scene.hold_threads(scope);
        let asked = self.begin();
        let prepares = |live: &Value| live["phase"] == "preparing" && live["prompt_tokens"] == 0;
        scene.wait_listed(&id, "rendered", prepares);
        if self.phase == Phase::Compile {
            wait_for("the request to wait", || scene.server.app.blocking.waiting() == 1);
            // Held again right after the prompt was made.
            let again = scene.hold_threads(scope);
            drop(std::mem::replace(&mut held, again));
            let compiles =
                |live: &Value| live["phase"] == "preparing" && live["prompt_tokens"] != 0;
            scene.wait_listed(&id, "compiled", compiles);
        }
        let stays = ask();
        let asked = self.end(asked);
        drop(held);
        (asked, stays)
    }

    /// The engine is held at the phase, with whoever stays in the same step.
    fn in_engine<'s>(&'s self, ask: impl Fn() -> Stays<'s>) -> Ended<'s> {
        let (scene, id) = (self.scene, self.id());
        let held = || wait_for(&format!("{id} to be held"), || scene.gate.holds());
        scene.gate.hold_at(|_| true);
        // Of twins, the one that ends comes first: the other would find its prompt computed.
        let first = self.shape == Shape::Twins && self.phase != Phase::Queue;
        let (asked, stays) = if first {
            let asked = self.begin();
            held();
            (asked, ask())
        } else {
            let stays = ask();
            held();
            (self.begin(), stays)
        };
        let jobs = if self.shape == Shape::Four { 5 } else { 2 };
        wait_for("both to be submitted", || scene.server.app.requests.owners().len() == jobs);
        if !(first && self.phase == Phase::FirstChunk) {
            scene.gate.hold_at(self.found());
            held();
        }
        let asked = self.end(asked);
        // From here on no step may hold a row of what has ended.
        let late = Arc::new(AtomicUsize::new(0));
        let (counted, twins) = (late.clone(), self.shape == Shape::Twins);
        scene.gate.hold_at(move |plan| {
            if !twins {
                counted.fetch_add(long_rows(plan).len(), Ordering::Relaxed);
            }
            false
        });
        scene.server.wait_idle();
        scene.gate.open();
        assert_eq!(late.load(Ordering::Relaxed), 0, "{id}: rows computed after the end");
        (asked, stays)
    }

    /// The step at which the phase has come.
    fn found(&self) -> Box<dyn FnMut(&StepPlan) -> bool + Send> {
        let needed = match self.shape {
            Shape::Stream | Shape::Plain => 1,
            Shape::Four => 4,
            Shape::Twins => 2,
        };
        let chunk = |wanted: fn(usize, usize) -> bool| -> Box<dyn FnMut(&StepPlan) -> bool + Send> {
            Box::new(move |plan| long_rows(plan).iter().any(|(past, len)| wanted(*past, *len)))
        };
        match self.phase {
            // The engine has taken the request by the time of a later step.
            Phase::Queue => {
                let mut steps = 0;
                Box::new(move |_| {
                    steps += 1;
                    steps == 4
                })
            }
            Phase::FirstChunk => chunk(|past, len| past == 0 && len > 1),
            Phase::MiddleChunk => chunk(|past, len| past > 0 && past + len < PROMPT_TOKENS - 1),
            Phase::LastChunk => chunk(|past, len| len > 1 && past + len >= PROMPT_TOKENS - 1),
            Phase::Rewind => {
                let mut before = (0, 0);
                Box::new(move |plan| {
                    let rows = long_rows(plan);
                    let now = (rows.len(), rows.iter().map(|(past, _)| *past).sum::<usize>());
                    let writes = rows.iter().all(|(past, len)| *len == 1 && *past > PROMPT_TOKENS);
                    // Every row that writes goes on by one, unless it goes back.
                    let back = writes && now.0 >= needed && now.0 == before.0;
                    let back = back && now.1 < before.1 + now.0;
                    before = now;
                    back
                })
            }
            _ => Box::new(move |plan| {
                let writes = |(past, len): &&(usize, usize)| *len == 1 && *past > PROMPT_TOKENS + 2;
                long_rows(plan).iter().filter(writes).count() >= needed
            }),
        }
    }

    /// The engine has finished, and nobody has read.
    fn when_finished<'s>(&'s self, before: u64, ask: impl Fn() -> Stays<'s>) -> Ended<'s> {
        let scene = self.scene;
        let asked = self.begin();
        wait_for("all choices to be finished", || finished(&scene.server) == before + 4);
        let stays = ask();
        let asked = match self.way {
            Way::Cancel => Some(asked),
            way => {
                asked.leave(way);
                None
            }
        };
        (asked, stays)
    }
}
