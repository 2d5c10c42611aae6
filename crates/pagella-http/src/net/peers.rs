//! Connections by the address they come from, and what is said of those that are too many.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::HttpState;
use crate::settings::Settings;

/// Shortest time between two lines of the log about connections that were refused.
const LINE_INTERVAL: Duration = Duration::from_secs(1);

/// Connections by peer address.
#[derive(Clone, Default)]
pub struct Peers {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    counts: HashMap<IpAddr, usize>,
    /// Refused since the last line about it, and when that was.
    refused: u64,
    told: Option<Instant>,
}

/// One connection of a peer, while it lives.
pub struct Counted {
    peers: Peers,
    peer: Option<IpAddr>,
}

/// The address that a peer's connections are counted under; `None` where they are not: this machine,
/// which also reaches itself at the address it is reached at, and proxies stand for any number of clients.
fn counted_as(settings: &Settings, peer: SocketAddr, own: Option<SocketAddr>) -> Option<IpAddr> {
    let address = peer.ip().to_canonical();
    let is_proxy = settings.network.proxies.iter().any(|subnet| subnet.contains(address));
    let is_here = own.is_some_and(|own| own.ip().to_canonical() == address);
    (!address.is_loopback() && !is_here && !is_proxy).then_some(address)
}

impl Peers {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a connection from `peer` to `own` in; `None`, a count and a line in the log if its peer has
    /// too many already.
    pub fn enter(
        &self,
        http: &HttpState,
        peer: SocketAddr,
        own: Option<SocketAddr>,
    ) -> Option<Counted> {
        let most = http.settings.limits.connections_per_peer;
        let entered = self.count(counted_as(&http.settings, peer, own), most);
        if entered.is_none() {
            http.http_metrics.note_refused_connection();
            if let Some(refused) = self.line_due(Instant::now()) {
                let fields = [
                    ("peer", http.log.peer(peer).into()),
                    ("limit", "limits.connections_per_peer".into()),
                    ("most", most.into()),
                    ("refused", Value::from(refused)),
                ];
                http.log.warn("connection_refused", &fields);
            }
        }
        entered
    }

    fn count(&self, peer: Option<IpAddr>, most: usize) -> Option<Counted> {
        if let Some(peer) = peer {
            let mut state = self.lock();
            let count = state.counts.entry(peer).or_insert(0);
            if *count >= most {
                return None;
            }
            *count += 1;
        }
        Some(Counted { peers: self.clone(), peer })
    }

    /// How many were refused since the last line, where one is due.
    fn line_due(&self, now: Instant) -> Option<u64> {
        let mut state = self.lock();
        state.refused += 1;
        if state.told.is_some_and(|told| now.duration_since(told) < LINE_INTERVAL) {
            return None;
        }
        state.told = Some(now);
        Some(std::mem::take(&mut state.refused))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let Some(peer) = self.peer else { return };
        let mut state = self.peers.lock();
        if let Some(count) = state.counts.get_mut(&peer) {
            *count -= 1;
            if *count == 0 {
                state.counts.remove(&peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_has_so_many_connections_and_no_more() {
        let peers = Peers::default();
        let peer = Some(IpAddr::from([10, 0, 0, 1]));
        let first = peers.count(peer, 2);
        let _second = peers.count(peer, 2);
        assert!(first.is_some() && peers.count(peer, 2).is_none());
        drop(first);
        assert!(peers.count(peer, 2).is_some());
        assert!(peers.count(Some(IpAddr::from([10, 0, 0, 2])), 1).is_some());
        assert!((0..9).all(|_| peers.count(None, 1).is_some()), "these are not counted");
    }

    #[test]
    fn this_machine_and_proxies_are_not_counted() {
        let mut settings = Settings::default();
        settings.network.proxies = vec!["10.1.0.0/16".parse().unwrap()];
        let own = "192.0.2.2:5000".parse().ok();
        let counted = |peer: &str| counted_as(&settings, peer.parse().unwrap(), own);
        for free in [
            "127.0.0.1:1",
            "127.9.9.9:1",
            "[::1]:1",
            "[::ffff:127.0.0.1]:1",
            "10.1.2.3:1",
            "192.0.2.2:9",
            "[::ffff:192.0.2.2]:9",
        ] {
            assert_eq!(counted(free), None, "{free}");
        }
        assert_eq!(counted("10.2.0.1:1"), Some(IpAddr::from([10, 2, 0, 1])));
        assert_eq!(counted("[::ffff:10.2.0.1]:1"), counted("10.2.0.1:9"));
    }

    #[test]
    fn a_flood_of_refusals_writes_few_lines_that_count_all_of_them() {
        let (peers, begin) = (Peers::default(), Instant::now());
        assert_eq!(peers.line_due(begin), Some(1));
        assert!((0..50).all(|_| peers.line_due(begin).is_none()));
        assert_eq!(peers.line_due(begin + LINE_INTERVAL), Some(51));
    }
}
