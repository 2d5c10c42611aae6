//! Every key, by section, in the order in which files show them.

mod answer;
mod limits;
mod model;
mod network;
mod operation;

use super::entry::Entry;

/// Every row.
pub fn entries() -> impl Iterator<Item = &'static Entry> {
    [network::ROWS, limits::ROWS, model::ROWS, answer::ROWS, operation::ROWS].into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Settings;
    use crate::config::given::Given;

    #[test]
    fn no_key_stands_twice_and_sections_stand_together() {
        let mut seen: Vec<String> = Vec::new();
        let mut sections: Vec<&str> = Vec::new();
        for entry in entries() {
            assert!(!seen.contains(&entry.path()), "{}", entry.path());
            seen.push(entry.path());
            if sections.last() != Some(&entry.section) {
                assert!(!sections.contains(&entry.section), "{}", entry.path());
                sections.push(entry.section);
            }
            assert!(!entry.doc.is_empty() && !entry.doc.ends_with('.'), "{}", entry.path());
        }
    }

    /// The defaults of the rows and those of the settings are the same ones.
    #[test]
    fn every_default_sets_what_is_the_default() {
        let mut settings = Settings::default();
        for entry in entries() {
            let given = match entry.default {
                "" => Given::Unset,
                text => entry.read(&entry.parse(text).unwrap()).unwrap(),
            };
            entry.apply(&mut settings, &given).unwrap();
            let (now, usual) = (format!("{settings:?}"), format!("{:?}", Settings::default()));
            assert_eq!(now, usual, "{}", entry.path());
        }
    }

    #[test]
    fn what_is_not_built_accepts_what_changes_nothing() {
        for entry in entries().filter(|entry| !entry.is_built()) {
            let read = |text: &str| entry.read(&entry.parse(text).unwrap());
            if let crate::config::entry::Kind::Neutral(neutral) = entry.kind {
                neutral.iter().for_each(|text| assert_eq!(read(text), Ok(Given::Unset), "{text}"));
                assert!(read("17.5").unwrap_err().contains(&entry.path()));
            }
        }
    }
}
