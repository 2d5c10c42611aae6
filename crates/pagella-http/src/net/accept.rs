//! Who comes in: sockets that listen, connections in all and by peer.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
#[cfg(unix)]
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::connection::{self, Door};
use super::peers::Peers;
use super::service::Service;
use super::tls::Certificates;

/// Pause after the system could not accept, e.g. because files ran out.
const PAUSE: Duration = Duration::from_millis(100);
/// What clients of a socket in the file system are called: they are on this machine.
pub const HERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
/// Clients with too many connections that are answered at once, in the words of what they asked for.
const REFUSED_AT_ONCE_MAX: usize = 64;
/// What the others of them read, whatever they asked for.
const REFUSAL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\n\
    connection: close\r\ncontent-length: 0\r\n\r\n";

/// A socket that listens.
pub enum Listener {
    /// On an address.
    Tcp(TcpListener),
    /// In the file system.
    #[cfg(unix)]
    Unix(UnixListener),
}

/// A client that has come.
enum Accepted {
    Tcp(TcpStream, SocketAddr),
    #[cfg(unix)]
    Unix(UnixStream),
}

/// What every connection of a socket has in common.
pub struct Entrance {
    pub listener: Listener,
    pub door: Door,
    pub certificates: Option<Arc<Certificates>>,
}

impl Entrance {
    /// Serves whoever comes.
    pub async fn serve(self, service: Service) {
        let places = Arc::new(Semaphore::new(service.http.settings.limits.connections));
        let refusals = Arc::new(Semaphore::new(REFUSED_AT_ONCE_MAX));
        let peers = Peers::default();
        loop {
            // While all places are taken, connections wait in the system's queue.
            let Ok(place) = places.clone().acquire_owned().await else { return };
            match self.accept().await {
                Ok(Accepted::Tcp(socket, peer)) => {
                    self.enter(&service, socket, peer, place, &peers, &refusals);
                }
                #[cfg(unix)]
                Ok(Accepted::Unix(socket)) => {
                    let (service, door) = (service.clone(), self.door);
                    tokio::spawn(async move {
                        connection::serve_http1(service, socket, HERE, door).await;
                        drop(place);
                    });
                }
                Err(error) => {
                    service.http.issue("accept", &error.to_string());
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    async fn accept(&self) -> io::Result<Accepted> {
        match &self.listener {
            Listener::Tcp(listener) => {
                let (socket, peer) = listener.accept().await?;
                Ok(Accepted::Tcp(socket, peer))
            }
            #[cfg(unix)]
            Listener::Unix(listener) => Ok(Accepted::Unix(listener.accept().await?.0)),
        }
    }

    /// Serves a client, or tells it that its address has too many connections. Those who are told hold
    /// no place: clients who say nothing must not keep others out.
    fn enter(
        &self,
        service: &Service,
        socket: TcpStream,
        peer: SocketAddr,
        place: OwnedSemaphorePermit,
        peers: &Peers,
        refusals: &Arc<Semaphore>,
    ) {
        connection::tune(&socket);
        match peers.enter(&service.http, peer, socket.local_addr().ok()) {
            Some(counted) => self.spawn(service, socket, peer, self.door, (place, counted)),
            None => match refusals.clone().try_acquire_owned() {
                Ok(refusal) => self.spawn(service, socket, peer, Door::Full, refusal),
                // Whatever was read of it: there is nobody left to wait for more.
                Err(_) => drop(socket.try_write(REFUSAL)),
            },
        }
    }

    /// Serves a client; `held` is given back when its connection has ended.
    fn spawn<H: Send + 'static>(
        &self,
        service: &Service,
        socket: TcpStream,
        peer: SocketAddr,
        door: Door,
        held: H,
    ) {
        let (service, certificates) = (service.clone(), self.certificates.clone());
        tokio::spawn(async move {
            match certificates {
                None => connection::serve_http1(service, socket, peer, door).await,
                Some(certificates) => {
                    connection::serve_tls(service, &certificates, socket, peer, door).await;
                }
            }
            drop(held);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Keys;
    use crate::call::{Call, Reply};
    use crate::fields::{Field, Rules};
    use crate::log::Log;
    use crate::route::{Access, Route, get, to};
    use crate::settings::Settings;
    use crate::wire::error::{ApiError, Dialect};
    use crate::{Application, HttpState};
    use std::sync::atomic::Ordering;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// Says that it lives.
    struct Living(Arc<HttpState>);

    async fn live(_: Call<Living>) -> Result<Reply, ApiError> {
        Reply::json(&"alive")
    }

    impl Rules for Living {
        fn field(_: &str) -> Option<Field> {
            None
        }
    }

    impl Application for Living {
        fn http(&self) -> &Arc<HttpState> {
            &self.0
        }

        fn routes() -> &'static [Route<Living>] {
            static ROUTES: [Route<Living>; 1] = [get("/health/live", Access::Public, to!(live))];
            &ROUTES
        }

        fn dialect_beside(_: &str) -> Dialect {
            Dialect::OpenAi
        }
    }

    /// A client that asks, and what it reads to the end.
    async fn ask(mut socket: TcpStream) -> String {
        let request = "GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n";
        let _ = socket.write_all(request.as_bytes()).await;
        let mut answer = String::new();
        let _ = socket.read_to_string(&mut answer).await;
        answer
    }

    #[tokio::test]
    async fn a_connection_too_many_is_answered_counted_and_written_down() {
        let dir = tempfile::tempdir().unwrap();
        let mut settings = Settings::default();
        settings.limits.connections_per_peer = 1;
        settings.logging.quiet = true;
        settings.logging.file = Some(dir.path().join("log"));
        let log = Log::open(settings.logging.clone()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let http = HttpState::new::<Living>(settings, log, Keys::none(), address);
        let service = Service::new(Arc::new(Living(Arc::new(http))));
        let listener = Listener::Tcp(listener);
        let entrance = Entrance { listener, door: Door::Main, certificates: None };
        let (peers, places) = (Peers::default(), Arc::new(Semaphore::new(8)));
        let refusals = Arc::new(Semaphore::new(1));
        let peer: SocketAddr = "192.0.2.7:1".parse().unwrap();
        let mut clients = Vec::new();
        for _ in 0..3 {
            clients.push(TcpStream::connect(address).await.unwrap());
            let Ok(Accepted::Tcp(socket, _)) = entrance.accept().await else { panic!() };
            let place = places.clone().acquire_owned().await.unwrap();
            entrance.enter(&service, socket, peer, place, &peers, &refusals);
        }
        assert_eq!(places.available_permits(), 7, "those who are refused hold no place");
        let hasty = ask(clients.pop().unwrap()).await;
        assert!(hasty.is_empty() || hasty.starts_with("HTTP/1.1 503"), "{hasty}");
        let second = ask(clients.pop().unwrap()).await;
        for part in ["HTTP/1.1 503", "retry-after: 1", "connection: close", "too_many_connections"]
        {
            assert!(second.contains(part), "{part} is not in {second}");
        }
        let text = std::fs::read_to_string(dir.path().join("log")).unwrap();
        assert!(text.contains("connection_refused peer=192.0.2.7:1"), "{text}");
        let refused = &service.http.http_metrics.refused_connections;
        assert_eq!(refused.load(Ordering::Relaxed), 2);
        // The first one is served; another address is, too.
        let mut first = clients.pop().unwrap();
        let request = "GET /health/live HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        first.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        first.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        let other = TcpStream::connect(address).await.unwrap();
        let Ok(Accepted::Tcp(socket, _)) = entrance.accept().await else { panic!() };
        let place = places.clone().acquire_owned().await.unwrap();
        entrance.enter(&service, socket, "192.0.2.8:1".parse().unwrap(), place, &peers, &refusals);
        drop(other);
    }
}
