//! A name server for tests: names say what they resolve to.

use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};

/// Answers forever: `a-10-0-0-1.test` has that address, `six-<32 hex digits>.test` that one, `both-…` a public one before it, `cname-…`
/// is an alias of `a-…`, and `rebind-….test` has a public address at the first question and 127.0.0.1 at every later one.
pub fn serve(socket: &UdpSocket, public: Ipv4Addr) {
    let mut asked: HashMap<String, u32> = HashMap::new();
    let mut query = [0; 512];
    while let Ok((len, from)) = socket.recv_from(&mut query) {
        let Some((name, kind, end)) = question(&query[..len]) else { continue };
        let count = asked.entry(format!("{name} {kind}")).or_insert(0);
        *count += 1;
        let records = records(&name, kind, *count, public);
        let mut answer = query[..2].to_vec();
        answer.extend([0x81, 0x80, 0, 1]);
        answer.extend((records.len() as u16).to_be_bytes());
        answer.extend([0; 4]);
        answer.extend(&query[12..end]);
        for (owner, kind, data) in records {
            answer.extend(owner.map_or(vec![0xc0, 12], |owner| labels(&owner)));
            answer.extend(kind.to_be_bytes());
            answer.extend([0, 1, 0, 0, 0, 0]);
            answer.extend((data.len() as u16).to_be_bytes());
            answer.extend(data);
        }
        let _ = socket.send_to(&answer, from);
    }
}

/// The owner (none: the name that was asked for), type and data.
type DnsRecord = (Option<String>, u16, Vec<u8>);
const A: u16 = 1;
const CNAME: u16 = 5;
const AAAA: u16 = 28;

fn records(name: &str, kind: u16, count: u32, public: Ipv4Addr) -> Vec<DnsRecord> {
    let name = name.to_ascii_lowercase();
    let first = name.split('.').next().unwrap_or_default();
    let address = |text: &str| text.replace('-', ".").parse::<Ipv4Addr>().ok();
    let a = |address: Ipv4Addr| (None, A, address.octets().to_vec());
    let (scheme, rest) = first.split_once('-').unwrap_or((first, ""));
    match (scheme, kind) {
        ("public", A) => vec![a(public)],
        ("metadata", A) => vec![a(Ipv4Addr::new(169, 254, 169, 254))],
        ("a", A) => address(rest).map(a).into_iter().collect(),
        ("both", A) => address(rest).map(|address| vec![a(address), a(public)]).unwrap_or_default(),
        ("six", AAAA) => {
            let bits = u128::from_str_radix(rest, 16).unwrap_or(0);
            vec![(None, AAAA, Ipv6Addr::from_bits(bits).octets().to_vec())]
        }
        ("cname", A) => {
            let target = format!("a-{rest}.test");
            let found = address(rest).unwrap_or(public).octets().to_vec();
            vec![(None, CNAME, labels(&target)), (Some(target), A, found)]
        }
        ("rebind", A) if count == 1 => vec![a(public)],
        ("rebind", A) => vec![a(Ipv4Addr::LOCALHOST)],
        _ => Vec::new(),
    }
}

fn labels(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for label in name.split('.') {
        bytes.push(label.len() as u8);
        bytes.extend(label.as_bytes());
    }
    bytes.push(0);
    bytes
}

/// The name and type of the question, and where it ends.
fn question(query: &[u8]) -> Option<(String, u16, usize)> {
    let (mut at, mut name) = (12, Vec::new());
    loop {
        let len = usize::from(*query.get(at)?);
        at += 1;
        if len == 0 {
            break;
        }
        name.push(String::from_utf8_lossy(query.get(at..at + len)?).into_owned());
        at += len;
    }
    let kind = u16::from_be_bytes([*query.get(at)?, *query.get(at + 1)?]);
    Some((name.join("."), kind, at + 4))
}
