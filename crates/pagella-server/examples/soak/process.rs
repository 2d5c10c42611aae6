//! The server as a process: started with keys of its own, watched through `/proc`, ended at the end.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::Error;
use crate::client::{self, Place};

/// How long the model may take to load.
const LOAD_TIME: Duration = Duration::from_secs(120);
/// Threads that compute: the engine's own, and those it computes with.
const ENGINE_THREADS: &[&str] = &["pagella-engine", "pagella-host", "pagella-load", "pagella-cpu"];
/// Parts of a second in which the system counts processor time.
const TICKS_PER_SECOND: u64 = 100;

const KEY: &str = "soak-admin-secret";

/// Processor time of the whole process, and of the engine's threads.
#[derive(Clone, Copy)]
pub struct Cpu {
    pub all: Duration,
    pub engine: Duration,
}

impl Cpu {
    /// Of the server's own threads.
    pub fn server(self) -> Duration {
        self.all.saturating_sub(self.engine)
    }

    pub fn since(self, earlier: &Cpu) -> Cpu {
        Cpu { all: self.all - earlier.all, engine: self.engine - earlier.engine }
    }
}

/// A server that runs; ends with the value.
pub struct ServerProcess {
    child: Child,
    address: SocketAddr,
    _dir: tempfile::TempDir,
}

impl ServerProcess {
    /// Starts it with the demo model and further arguments, and waits until it is ready.
    pub async fn start(program: &Path, args: &[&str]) -> Result<Self, Error> {
        let dir = tempfile::tempdir()?;
        let keys = dir.path().join("keys.toml");
        let key = format!("[[key]]\nname = \"soak\"\nkey = \"{KEY}\"\nrole = \"admin\"\n");
        std::fs::write(&keys, key)?;
        let mut child = Command::new(program)
            .args(["serve", "demo", "--port", "0", "--no-access-log", "--keys"])
            .arg(&keys)
            .args(args)
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{}: {error}: build it first", program.display()))?;
        let mut lines = BufReader::new(child.stderr.take().ok_or("no output")?).lines();
        let address = loop {
            let line = lines.next().ok_or("the server ended before it listened")??;
            if let Some((_, address)) = line.split_once("listening on http://") {
                break address.trim().parse()?;
            }
        };
        std::thread::spawn(move || {
            lines.map_while(Result::ok).for_each(|line| eprintln!("  server: {line}"))
        });
        let server = ServerProcess { child, address, _dir: dir };
        let begun = Instant::now();
        while !client::is_ready(&server.place()).await {
            if begun.elapsed() > LOAD_TIME {
                return Err("the server does not become ready".into());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(server)
    }

    /// Where clients ask.
    pub fn place(&self) -> Place {
        Place { to: self.address, key: KEY.to_owned() }
    }

    fn proc(&self, path: &str) -> String {
        format!("/proc/{}/{path}", self.child.id())
    }

    /// Memory that the process really occupies.
    pub fn resident_bytes(&self) -> Result<u64, Error> {
        let status = std::fs::read_to_string(self.proc("status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next());
        Ok(kib.ok_or("no VmRSS")?.parse::<u64>()? * 1024)
    }

    /// Processor time so far. The whole counts threads that have ended; the engine's never end.
    pub fn cpu(&self) -> Result<Cpu, Error> {
        let stat = std::fs::read_to_string(self.proc("stat"))?;
        // The name of the program, in brackets, may hold anything: fields count from behind it.
        let (_, fields) = stat.rsplit_once(')').ok_or("no stat")?;
        let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
        let ticks: u64 = ticks.sum::<Result<u64, _>>()?;
        let all = Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND);
        let mut engine = Duration::ZERO;
        for task in std::fs::read_dir(self.proc("task"))? {
            let task = task?.path();
            let (Ok(name), Ok(times)) = (
                std::fs::read_to_string(task.join("comm")),
                std::fs::read_to_string(task.join("schedstat")),
            ) else {
                continue;
            };
            if ENGINE_THREADS.iter().any(|known| name.starts_with(known)) {
                let nanos = times.split_whitespace().next().unwrap_or("0").parse()?;
                engine += Duration::from_nanos(nanos);
            }
        }
        Ok(Cpu { all, engine })
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
