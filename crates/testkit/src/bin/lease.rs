//! `windlass-lease URL LEASE_MS`: a worker of several on PostgreSQL. It is told what to do on its standard input, and says what happens.

fn main() -> anyhow::Result<()> {
    windlass_testkit::leases::process::main(std::env::args().skip(1).collect())
}
