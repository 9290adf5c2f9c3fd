//! Stands for a Service: one port, and replicas behind it that are put in and taken out. Like a node's
//! rules it leaves connections alone that are there.

use std::io::copy;
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

#[derive(Clone)]
pub(crate) struct Balancer {
    pub(crate) port: u16,
    backends: Arc<Mutex<Vec<u16>>>,
}

impl Balancer {
    /// Without replicas. It lasts as long as the test's process.
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let balancer = Self {
            port: listener.local_addr().unwrap().port(),
            backends: Arc::default(),
        };
        let accepting = balancer.clone();
        thread::spawn(move || {
            for client in listener.incoming() {
                accepting.pass(client.unwrap());
            }
        });
        balancer
    }

    pub(crate) fn put(&self, backend: u16) {
        self.backends.lock().unwrap().push(backend);
    }

    pub(crate) fn take_out(&self, backend: u16) {
        self.backends
            .lock()
            .unwrap()
            .retain(|known| *known != backend);
    }

    /// To the next replica in turn; one that refuses is a refused connection to the client as well.
    fn pass(&self, client: TcpStream) {
        let backend = {
            let mut backends = self.backends.lock().unwrap();
            if !backends.is_empty() {
                backends.rotate_left(1);
            }
            backends.last().copied()
        };
        let Some(server) =
            backend.and_then(|port| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok())
        else {
            return;
        };
        for stream in [&client, &server] {
            stream.set_nodelay(true).unwrap();
        }
        let (up, down) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        thread::spawn(move || one_way(up, server));
        thread::spawn(move || one_way(down, client));
    }
}

/// Until an end closes.
fn one_way(mut from: TcpStream, mut to: TcpStream) {
    let _broken_off = copy(&mut from, &mut to).is_err();
    let _gone_already = to.shutdown(Shutdown::Write).is_err();
}
