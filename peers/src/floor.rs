//! The floor: two rows of 400 bytes for each call, one after the other, each durable before the next. Rows of different sessions share
//! statements: a connection writes all rows that came while it wrote the last ones, in one round trip.

use crate::OneCall;
use anyhow::Result;
use std::sync::Arc;
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio_postgres::NoTls;

/// The arguments of each call.
pub const FILLER: &str = "as long as arguments usually are, more or less";
const ROW_BYTES: usize = 400;
/// The connections of a worker of Windlass.
const CONNECTIONS: usize = 4;
const GROUP_MAX: usize = 256;

type Row = oneshot::Sender<()>;

pub async fn start(database: &str) -> Result<OneCall> {
    let (send, take) = mpsc::channel::<Row>(100_000);
    let take = Arc::new(Mutex::new(take));
    for number in 0..CONNECTIONS {
        let (client, connection) = tokio_postgres::connect(database, NoTls).await?;
        tokio::spawn(connection);
        if number == 0 {
            client.batch_execute("CREATE TABLE rows (no bigserial PRIMARY KEY, data bytea NOT NULL)").await?;
        }
        let take = take.clone();
        tokio::spawn(async move { write(client, &take).await });
    }
    Ok(Arc::new(move |_| {
        let send = send.clone();
        Box::pin(async move {
            for _ in 0..2 {
                let (told, hears) = oneshot::channel();
                send.send(told).await?;
                hears.await?;
            }
            Ok(())
        })
    }))
}

async fn write(client: tokio_postgres::Client, take: &Mutex<mpsc::Receiver<Row>>) -> Result<()> {
    let insert = client.prepare("INSERT INTO rows (data) SELECT unnest($1::bytea[])").await?;
    loop {
        let mut group = Vec::new();
        if take.lock().await.recv_many(&mut group, GROUP_MAX).await == 0 {
            return Ok(());
        }
        let rows = vec![vec![7_u8; ROW_BYTES]; group.len()];
        client.execute(&insert, &[&rows]).await?;
        for told in group {
            // Whoever asked may be gone at the end of a turn.
            let _ = told.send(());
        }
    }
}
