//! Several answers at once: shown while they are written, printed in order.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use pagella::{BatchItem, Complete, Engine, Record};
use serde_json::{Value, json};

use super::pages::PagesView;
use super::{RunArgs, answer, blame};
use crate::output;

/// How often something new is shown.
const REDRAW: Duration = Duration::from_millis(100);

/// Everything an answer has said, by prompt and completion.
type Answers = BTreeMap<(usize, usize), Record>;

/// Computes all answers, then prints them.
pub fn run(args: &RunArgs, engine: &Engine, prompts: Vec<Complete>) -> Result<()> {
    let n_prompts = prompts.len();
    let n_answers = n_prompts * usize::from(args.prompt_flags.n);
    let mut view = match args.show_pages {
        true => View::Pages(Box::new(PagesView::new(engine, n_answers)?)),
        false if args.output.json => View::Bar(ProgressBar::hidden()),
        false => View::Bar(bar(n_answers)),
    };
    let mut answers = Answers::new();
    let mut batch = engine.batch(prompts);
    loop {
        match batch.next_within(REDRAW) {
            Some(None) => break,
            Some(Some(item)) => take(item, &mut answers, &mut view)?,
            None => {}
        }
        if let View::Pages(pages) = &mut view {
            pages.redraw(engine)?;
        }
    }
    match view {
        View::Pages(pages) => pages.end(engine)?,
        View::Bar(bar) => bar.finish_and_clear(),
    }
    print(args, engine, n_prompts, &answers)
}

/// What is shown meanwhile.
enum View {
    Bar(ProgressBar),
    Pages(Box<PagesView>),
}

/// Counts finished answers on a terminal; silent elsewhere.
pub fn bar(answers: usize) -> ProgressBar {
    let bar = ProgressBar::new(answers as u64);
    if let Ok(style) = ProgressStyle::with_template("{wide_bar} {pos}/{len} answers, {msg}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(REDRAW);
    bar
}

fn take(item: BatchItem, answers: &mut Answers, view: &mut View) -> Result<()> {
    let key = (item.prompt, item.completion);
    let record = item.record.map_err(blame)?;
    match view {
        View::Pages(pages) => pages.take(key, &record),
        View::Bar(bar) => {
            bar.inc(u64::from(record.is_last()));
            let tokens: usize = answers.values().map(|answer| answer.token_ids.len()).sum();
            bar.set_message(format!("{tokens} tokens"));
        }
    }
    match answers.entry(key) {
        std::collections::btree_map::Entry::Vacant(entry) => drop(entry.insert(record)),
        std::collections::btree_map::Entry::Occupied(mut entry) => entry.get_mut().merge(record),
    }
    Ok(())
}

fn print(args: &RunArgs, engine: &Engine, n_prompts: usize, answers: &Answers) -> Result<()> {
    if args.output.json {
        let object = |(&(prompt, completion), record): (&(usize, usize), &Record)| {
            let mut object = answer::json(record, engine.tokenizer())?;
            object["prompt_index"] = json!(prompt);
            object["completion_index"] = json!(completion);
            Ok(object)
        };
        let objects: Vec<Value> = answers.iter().map(object).collect::<Result<_>>()?;
        return output::print_json(&Value::Array(objects));
    }
    for (idx, ((prompt, completion), record)) in answers.iter().enumerate() {
        let gap = if idx > 0 { "\n" } else { "" };
        let of_prompt = match n_prompts {
            1 => String::new(),
            _ => format!(" prompt {} of {n_prompts}", prompt + 1),
        };
        let of_answer = match args.prompt_flags.n {
            1 => String::new(),
            n => format!(" answer {} of {n}", completion + 1),
        };
        let done = record.eos.as_ref().context("an answer has no end: please report it")?;
        if answers.len() > 1 {
            output::print(&format!("{gap}---{of_prompt}{of_answer}\n"))?;
        }
        output::print(&format!("{}\n", done.text))?;
        answer::note(done);
    }
    Ok(())
}
