//! `keys.toml`: reading it, and making one when there is none.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Deserialize;

use super::key::{CacheScope, Key, Keys, Role};
use super::tokens;
use crate::settings::Auth;
use crate::wire::id::random_bytes;

/// Largest file that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Shortest secret that is accepted.
pub(super) const SECRET_BYTES_MIN: usize = 8;

/// Why a file of keys cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyFileError {
    /// It cannot be read or written.
    #[error("{}: {source}: check the file, or choose another with --keys", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It says something that cannot be meant.
    #[error("{}: {problem}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what to do.
        problem: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    key: Vec<Written>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    name: String,
    key: Option<String>,
    hash: Option<String>,
    role: String,
    #[serde(default)]
    max_concurrent: usize,
    max_queued: Option<usize>,
    #[serde(default)]
    max_tokens: usize,
    #[serde(default)]
    tokens_per_minute: u64,
    models: Option<Vec<String>>,
    #[serde(default)]
    priority: i32,
    cache: Option<String>,
    expires: Option<toml::value::Datetime>,
}

/// The file that is read: the one that was named, or TabbyAPI's beside it where only that is there.
pub fn file_in_use(path: &Path) -> PathBuf {
    let tabby = path.with_file_name(tokens::FILE);
    if !path.exists() && tabby.exists() { tabby } else { path.to_owned() }
}

/// Whether users of this machine other than its owner can read a file.
pub fn is_open_to_others(path: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        std::fs::metadata(path).is_ok_and(|meta| meta.permissions().mode() & 0o077 != 0)
    }
    #[cfg(not(unix))]
    {
        let _ = path;
        false
    }
}

/// Reads the file of keys as a whole: one that is wrong anywhere is refused.
pub fn load(settings: &Auth) -> Result<Keys, KeyFileError> {
    let path = &file_in_use(&settings.keys_file);
    if settings.strict_key_file && is_open_to_others(path) {
        let problem = "others can read it: take that right away (chmod 600)".to_owned();
        return Err(KeyFileError::Invalid { path: path.clone(), problem });
    }
    load_file(path)
}

fn load_file(path: &Path) -> Result<Keys, KeyFileError> {
    let io = |source| KeyFileError::Io { path: path.to_owned(), source };
    let invalid = |problem| KeyFileError::Invalid { path: path.to_owned(), problem };
    let size = std::fs::metadata(path).map_err(io)?.len();
    if size > FILE_BYTES_MAX {
        return Err(invalid(format!("{size} bytes are too many for a file of keys")));
    }
    let text = std::fs::read_to_string(path).map_err(io)?;
    let is_tabby = path.extension().is_some_and(|ending| ending == "yml");
    if is_tabby { tokens::parse(&text) } else { parse(&text) }.map_err(invalid)
}

fn parse(text: &str) -> Result<Keys, String> {
    // The parser's own message would quote the line, and with it a key.
    let file: File = toml::from_str(text).map_err(|error| {
        let line = error.span().map_or(0, |span| text[..span.start].matches('\n').count() + 1);
        format!("line {line}: {}", error.message())
    })?;
    let mut keys = Keys::none();
    let mut names: Vec<String> = Vec::new();
    for written in file.key {
        let name = written.name.clone();
        let problem = |problem: &str| format!("key {name:?}: {problem}");
        if name.is_empty() || name.len() > 64 || names.contains(&name) {
            return Err(problem("names are 1 to 64 bytes long and unique: choose another"));
        }
        let secret = written.key.clone();
        let hash = written.hash.clone();
        let key = key(written).map_err(|text| problem(&text))?;
        match (secret, hash) {
            (Some(secret), None) if secret.len() >= SECRET_BYTES_MIN => keys.add(&secret, key),
            (Some(_), None) => return Err(problem("the secret is shorter than 8 bytes")),
            (None, Some(hash)) => {
                let digest = hash.strip_prefix("blake2b:").and_then(from_hex);
                let digest = digest.ok_or_else(|| problem("hash is not blake2b: and 64 digits"))?;
                keys.add_hashed(digest, key);
            }
            _ => return Err(problem("give either key or hash")),
        }
        names.push(name);
    }
    match keys.is_empty() {
        true => Err("there is no [[key]]: add one, or remove the file to get new keys".to_owned()),
        false => Ok(keys),
    }
}

fn key(written: Written) -> Result<Key, String> {
    let role = match written.role.as_str() {
        "api" => Role::Api,
        "admin" => Role::Admin,
        other => return Err(format!("role {other:?} is neither \"api\" nor \"admin\"")),
    };
    let cache = match written.cache.as_deref() {
        None | Some("own") => CacheScope::Own,
        Some("shared") => CacheScope::Shared,
        Some(text) => match text.strip_prefix("group:") {
            Some(group) if !group.is_empty() => CacheScope::Group(group.to_owned()),
            _ => return Err(format!("cache {text:?} is not own, shared or group:NAME")),
        },
    };
    let expires = match written.expires {
        None => None,
        Some(date) => Some(instant(&date).ok_or("expires is not a date")?),
    };
    let usual = Key::new(written.name, role);
    Ok(Key {
        max_concurrent: written.max_concurrent,
        max_queued: written.max_queued.unwrap_or(usual.max_queued),
        max_tokens: written.max_tokens,
        tokens_per_minute: written.tokens_per_minute,
        models: written.models.unwrap_or_else(|| usual.models.clone()),
        priority: written.priority,
        cache,
        expires,
        ..usual
    })
}

/// The beginning of a date, or the moment of a date with time; without an offset, in UTC.
fn instant(date: &toml::value::Datetime) -> Option<SystemTime> {
    let day = date.date?;
    let days = days_since_epoch(i64::from(day.year), i64::from(day.month), i64::from(day.day));
    let time = date.time.map_or(0, |time| {
        let second = time.second.map_or(0, i64::from);
        i64::from(time.hour) * 3600 + i64::from(time.minute) * 60 + second
    });
    let offset = match date.offset {
        Some(toml::value::Offset::Custom { minutes }) => i64::from(minutes) * 60,
        _ => 0,
    };
    let seconds = u64::try_from(days * 86_400 + time - offset).ok()?;
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

/// Days from 1970-01-01 in the Gregorian calendar, with years that begin in March, so that the
/// leap day is the last of a year.
fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

fn from_hex(text: &str) -> Option<[u8; 32]> {
    let digits = text.as_bytes();
    if digits.len() != 64 {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}

/// Writes a file with one key of each role, readable by its owner only, and returns both secrets:
/// `(api, admin)`. This is the only time they are known in full.
pub fn create(path: &Path) -> Result<(String, String), KeyFileError> {
    let secret = || format!("{:032x}", u128::from_le_bytes(random_bytes()));
    let (api, admin) = (secret(), secret());
    let text = format!(
        "# Keys of `pagella serve`. Changes are noticed while it runs.\n\n\
         [[key]]\nname = \"api\"\nkey = \"{api}\"\nrole = \"api\"\n\n\
         [[key]]\nname = \"admin\"\nkey = \"{admin}\"\nrole = \"admin\"\n"
    );
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let io = |source| KeyFileError::Io { path: path.to_owned(), source };
    options.open(path).and_then(|mut file| file.write_all(text.as_bytes())).map_err(io)?;
    Ok((api, admin))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str) -> String {
        parse(text).err().unwrap()
    }

    #[test]
    fn a_new_file_holds_what_was_returned() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys.toml");
        let (api, admin) = create(&path).unwrap();
        assert_eq!((api.len(), admin.len()), (32, 32));
        assert_eq!(load_file(&path).unwrap().len(), 2);
        assert!(create(&path).is_err(), "an existing file is never replaced");
        #[cfg(unix)]
        {
            let mode = std::fs::metadata(&path).unwrap();
            assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode.permissions()) & 0o777, 0o600);
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_others_can_read_is_refused_where_that_was_asked_for() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys.toml");
        create(&path).unwrap();
        let mut settings = Auth { keys_file: path.clone(), ..Auth::default() };
        settings.strict_key_file = true;
        load(&settings).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(load(&settings).err().unwrap().to_string().contains("others can read"));
        settings.strict_key_file = false;
        load(&settings).unwrap();
        assert!(is_open_to_others(&path));
    }

    #[test]
    fn tabbyapis_file_is_read_where_there_is_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys.toml");
        let text = "admin_key: adminsecret\napi_key: [apisecret1, apisecret2]\n";
        std::fs::write(dir.path().join(tokens::FILE), text).unwrap();
        let settings = Auth { keys_file: path.clone(), ..Auth::default() };
        assert_eq!(load(&settings).unwrap().len(), 3);
        create(&path).unwrap();
        assert_eq!(load(&settings).unwrap().len(), 2, "our own file comes first");
    }

    #[test]
    fn every_field_is_read() {
        let text = "[[key]]\nname = 'a'\nkey = '12345678'\nrole = 'api'\nmax_concurrent = 4\n\
            max_queued = 16\nmax_tokens = 5\ntokens_per_minute = 7\nmodels = ['q*']\npriority = -1\n\
            cache = 'group:team'\nexpires = 2027-01-01\n";
        assert_eq!(parse(text).unwrap().len(), 1);
        let hash = "[[key]]\nname = 'a'\nrole = 'admin'\nhash = 'blake2b:";
        assert_eq!(parse(&format!("{hash}{}'", "0a".repeat(32))).unwrap().len(), 1);
    }

    #[test]
    fn wrong_files_are_refused_without_showing_keys() {
        let start = "[[key]]\nname = 'a'\nkey = 'topsecret'\n";
        assert!(problem("").contains("no [[key]]"));
        assert!(problem(&format!("{start}role = 'root'")).contains("root"));
        assert!(problem(&format!("{start}role = 'api'\ncache = 'x'")).contains("group"));
        assert!(problem(&format!("{start}role = 'api'\nhash = 'x'")).contains("either"));
        assert!(problem(&format!("{start}role = 'api'\n{start}role = 'api'")).contains("unique"));
        for text in
            [format!("{start}rôle = 1"), format!("{start}role = 'api'\nroll = 1"), start.into()]
        {
            let problem = problem(&text);
            assert!(problem.contains("line") && !problem.contains("topsecret"), "{problem}");
        }
    }

    #[test]
    fn dates_become_moments() {
        let at = |text: &str| {
            let moment = instant(&text.parse().unwrap()).unwrap();
            moment.duration_since(UNIX_EPOCH).unwrap().as_secs()
        };
        assert_eq!(at("1970-01-02"), 86_400);
        assert_eq!(at("2027-01-01"), 1_798_761_600);
        assert_eq!(at("2024-02-29T12:00:00+02:00"), 1_709_200_800);
    }
}
