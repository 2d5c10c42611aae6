//! Panics that are caught, with the place in the source where they began.
//!
//! The place is known only while the panic begins, so a hook notes it for the thread; whoever catches
//! the panic on that thread takes it from there. What other hooks do, they do as before.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Once};
use std::task::Poll;

use crate::HttpState;
use crate::wire::error::ApiError;

/// Work that ends with an answer.
pub type AnswerFuture<T> = Pin<Box<dyn Future<Output = Result<T, ApiError>> + Send>>;

thread_local! {
    static PLACE: Cell<Option<String>> = const { Cell::new(None) };
}

/// A panic that was caught.
#[derive(Debug)]
pub struct Panicked {
    /// File, line and column.
    pub place: Option<String>,
}

/// Does something; a panic in it ends nothing else.
pub fn catch<T>(work: impl FnOnce() -> T) -> Result<T, Panicked> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let place = info.location().map(ToString::to_string);
            // A thread that is ending has nobody left who would ask.
            let _ = PLACE.try_with(|known| known.set(place));
            before(info);
        }));
    });
    // Nobody looks at what the work was doing to its own values.
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| Panicked { place: PLACE.take() })
}

/// Work for a route in which a panic is answered, counted and written down.
pub fn answered<T: 'static>(
    http: Arc<HttpState>,
    path: &'static str,
    mut work: AnswerFuture<T>,
) -> AnswerFuture<T> {
    Box::pin(std::future::poll_fn(move |context| {
        catch(|| work.as_mut().poll(context)).unwrap_or_else(|panicked| {
            http.http_metrics.note_panic();
            let place = panicked.place.as_deref().unwrap_or("an unknown place");
            http.issue("panic", &format!("{path} at {place}"));
            Poll::Ready(Err(ApiError::from_panic(&panicked)))
        })
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_a_panic_is_known_to_who_catches_it() {
        assert_eq!(catch(|| 7).unwrap(), 7);
        let line = line!() + 1;
        let place = catch(|| panic!("a defect")).unwrap_err().place.unwrap();
        assert!(place.contains(&format!("caught.rs:{line}:")), "{place}");
        // Each thread has its own.
        let other = std::thread::spawn(|| catch(|| panic!("another")).unwrap_err().place);
        assert_ne!(other.join().unwrap(), Some(place));
    }
}
