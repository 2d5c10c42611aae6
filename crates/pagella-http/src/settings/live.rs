//! Settings that can change while requests read them.

use std::ops::Deref;
use std::sync::{Mutex, OnceLock, PoisonError};

use super::Settings;

/// The settings now. Reading takes no lock: every change is a link at the end of a chain, and what
/// was read stays readable. Changes come from an operator's hand, so the chain stays short.
pub struct LiveSettings {
    first: Link,
    /// Held by whoever appends.
    changing: Mutex<()>,
}

struct Link {
    settings: Settings,
    next: OnceLock<Box<Link>>,
}

impl Link {
    fn new(settings: Settings) -> Self {
        Link { settings, next: OnceLock::new() }
    }
}

impl LiveSettings {
    /// Settings at the start.
    pub fn new(settings: Settings) -> Self {
        LiveSettings { first: Link::new(settings), changing: Mutex::default() }
    }

    fn last(&self) -> &Link {
        let mut link = &self.first;
        while let Some(next) = link.next.get() {
            link = next;
        }
        link
    }

    /// Lets other settings hold from now on.
    pub fn change(&self, settings: Settings) {
        let _alone = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        // Nobody else appends, so the last link has no next one.
        let _ = self.last().next.set(Box::new(Link::new(settings)));
    }
}

impl Deref for LiveSettings {
    type Target = Settings;

    fn deref(&self) -> &Settings {
        &self.last().settings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_settings_are_read_and_older_ones_stay_readable() {
        let live = LiveSettings::new(Settings::default());
        let before = &*live;
        for port in 1..=3 {
            let mut settings = live.clone();
            settings.network.port = port;
            live.change(settings);
        }
        assert_eq!((before.network.port, live.network.port), (5000, 3));
    }
}
