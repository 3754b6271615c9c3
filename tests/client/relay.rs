//! An address that stays while the broker behind it comes and goes, and that counts what passes.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// Forwards connections to wherever the broker listens now.
pub(crate) struct Relay {
    address: SocketAddr,
    target: Arc<Mutex<SocketAddr>>,
    calls: Arc<AtomicUsize>,
    work: tokio::task::JoinHandle<()>,
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.work.abort();
    }
}

impl Relay {
    pub(crate) async fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (target, calls) = (Arc::new(Mutex::new(target)), Arc::default());
        let work = tokio::spawn(serve(listener, Arc::clone(&target), Arc::clone(&calls)));
        Self { address, target, calls, work }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Where connections go from now on.
    pub(crate) fn aim(&self, target: SocketAddr) {
        *self.target.lock().unwrap() = target;
    }

    /// How many calls have passed, the streams not counted.
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

async fn serve(listener: TcpListener, target: Arc<Mutex<SocketAddr>>, calls: Arc<AtomicUsize>) {
    loop {
        let Ok((near, _)) = listener.accept().await else { return };
        let (target, calls) = (*target.lock().unwrap(), Arc::clone(&calls));
        tokio::spawn(async move {
            let Ok(far) = TcpStream::connect(target).await else { return };
            let (near_read, near_write) = near.into_split();
            let (far_read, far_write) = far.into_split();
            // Either end closing closes both: halves that stay open would hide a broker that is gone.
            tokio::select! {
                () = pass(near_read, far_write, Some(calls)) => {}
                () = pass(far_read, near_write, None) => {}
            }
        });
    }
}

async fn pass(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    calls: Option<Arc<AtomicUsize>>,
) {
    let mut piece = vec![0; 64 * 1024];
    while let Ok(read @ 1..) = from.read(&mut piece).await {
        if let Some(calls) = &calls
            && piece[..read].starts_with(b"POST ")
            && !piece[..read].windows(17).any(|text| text == b"text/event-stream")
        {
            calls.fetch_add(1, Ordering::SeqCst);
        }
        if to.write_all(&piece[..read]).await.is_err() {
            return;
        }
    }
}
