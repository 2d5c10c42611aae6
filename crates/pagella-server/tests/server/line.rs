//! Clients that leave: a request over HTTP/1 or HTTP/2 that was sent and is not read, and the ways in
//! which its client can go. For tests without `async`.

use std::future::poll_fn;
use std::net::{SocketAddr, TcpStream};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body::Body;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::support::{Answer, Client, parse};
use crate::tls;

/// How a client goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// It closes its connection.
    Close,
    /// Its connection is reset.
    Reset,
    /// It resets the one stream of its connection; with HTTP/1 there is no such thing.
    Stop,
    /// It asks for the end of its request, and reads on.
    Cancel,
}

/// Where clients are.
pub trait Line: Sync {
    /// Sends a request under an id, and reads nothing.
    fn begin(&self, id: &str, key: &str, path: &str, body: &Value) -> Box<dyn Asked>;

    /// Sends a request and reads the answer; a body makes it a POST.
    fn ask(&self, key: &str, path: &str, body: Option<&Value>) -> Answer;
}

/// A request that was sent.
pub trait Asked: Send {
    /// Its client goes.
    fn leave(self: Box<Self>, way: Way);

    /// Its answer, to the end.
    fn answer(self: Box<Self>) -> Answer;
}

/// Makes the end of a connection a reset: what was not sent is thrown away, and so is the connection.
fn reset_at_end(socket: &TcpStream) {
    socket2::SockRef::from(socket).set_linger(Some(Duration::ZERO)).unwrap();
}

/// Clients of HTTP/1, each with a connection of its own.
pub struct Http1(pub SocketAddr);

impl Http1 {
    fn client(&self, key: &str) -> Client {
        Client { address: self.0, headers: vec![("x-api-key".into(), key.into())] }
    }
}

impl Line for Http1 {
    fn begin(&self, id: &str, key: &str, path: &str, body: &Value) -> Box<dyn Asked> {
        let client = self.client(key).with("x-request-id", id);
        Box::new(client.open("POST", path, Some(body.to_string().as_bytes())))
    }

    fn ask(&self, key: &str, path: &str, body: Option<&Value>) -> Answer {
        match body {
            Some(body) => self.client(key).post(path, body),
            None => self.client(key).get(path),
        }
    }
}

impl Asked for TcpStream {
    fn leave(self: Box<Self>, way: Way) {
        assert!([Way::Close, Way::Reset].contains(&way), "{way:?}");
        if way == Way::Reset {
            reset_at_end(&self);
        }
    }

    fn answer(mut self: Box<Self>) -> Answer {
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut *self, &mut bytes).unwrap();
        parse(&bytes)
    }
}

/// Bytes that a server may send before a client of HTTP/2 has read.
const WINDOW_BYTES: u32 = 65_535;

/// Clients of HTTP/2 over TLS, each with a connection of its own.
pub struct Http2 {
    address: SocketAddr,
    /// Connections that go on after their request was given up.
    kept: Arc<Mutex<Vec<Runtime>>>,
}

impl Http2 {
    pub fn new(address: SocketAddr) -> Self {
        Http2 { address, kept: Arc::default() }
    }

    fn send(&self, id: &str, key: &str, path: &str, body: Option<&Value>) -> Asked2 {
        let port = self.address.port();
        let request = http::Request::builder()
            .method(if body.is_some() { "POST" } else { "GET" })
            .uri(format!("https://localhost:{port}{path}"))
            .header("x-api-key", key)
            .header("x-request-id", id)
            .header("content-type", "application/json")
            .body(body.map(Value::to_string).unwrap_or_default())
            .unwrap();
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build().unwrap();
        let socket = TcpStream::connect(self.address).unwrap();
        let own = socket.try_clone().unwrap();
        socket.set_nonblocking(true).unwrap();
        let (mut sender, connection) = runtime.block_on(async {
            let socket = tokio::net::TcpStream::from_std(socket).unwrap();
            let socket = tls::greet(socket, "first", &["h2"]).await.unwrap();
            let mut builder = http2::Builder::new(TokioExecutor::new());
            builder.initial_stream_window_size(WINDOW_BYTES);
            builder.initial_connection_window_size(WINDOW_BYTES);
            builder.handshake(TokioIo::new(socket)).await.unwrap()
        });
        runtime.spawn(connection);
        let (read, reads) = oneshot::channel();
        let (give, answer) = std::sync::mpsc::channel();
        let request = runtime.spawn(async move {
            let Ok(response) = sender.send_request(request).await else { return };
            // Nothing of the body is taken before: the server may send no more than a window.
            if reads.await.is_ok() {
                let _ = give.send(whole(response).await);
            }
        });
        Asked2 { socket: own, runtime, request, read, answer, kept: self.kept.clone() }
    }
}

async fn whole(response: http::Response<hyper::body::Incoming>) -> Answer {
    let (head, mut incoming) = response.into_parts();
    let mut body = Vec::new();
    while let Some(frame) = poll_fn(|context| Pin::new(&mut incoming).poll_frame(context)).await {
        body.extend_from_slice(&frame.unwrap().into_data().unwrap_or_default());
    }
    Answer { status: head.status.as_u16(), headers: Vec::new(), body }
}

impl Line for Http2 {
    fn begin(&self, id: &str, key: &str, path: &str, body: &Value) -> Box<dyn Asked> {
        Box::new(self.send(id, key, path, Some(body)))
    }

    fn ask(&self, key: &str, path: &str, body: Option<&Value>) -> Answer {
        Box::new(self.send("asked", key, path, body)).answer()
    }
}

/// A request over HTTP/2. Its connection is served by a runtime of its own, and ends with it.
struct Asked2 {
    socket: TcpStream,
    runtime: Runtime,
    request: JoinHandle<()>,
    read: oneshot::Sender<()>,
    answer: std::sync::mpsc::Receiver<Answer>,
    kept: Arc<Mutex<Vec<Runtime>>>,
}

impl Asked for Asked2 {
    fn leave(self: Box<Self>, way: Way) {
        match way {
            Way::Stop => {
                self.request.abort();
                self.kept.lock().unwrap().push(self.runtime);
                return;
            }
            Way::Reset => reset_at_end(&self.socket),
            Way::Close => {}
            Way::Cancel => panic!("it reads on"),
        }
        // The connection ends with the last that holds it.
        drop(self.socket);
        self.runtime.shutdown_background();
    }

    fn answer(self: Box<Self>) -> Answer {
        self.read.send(()).unwrap();
        let answer = self.answer.recv_timeout(Duration::from_secs(60)).unwrap();
        self.runtime.shutdown_background();
        answer
    }
}
