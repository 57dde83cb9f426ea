//! error: `Refund` cannot be the arguments of a tool
//! error: write `#[derive(serde::Deserialize, schemars::JsonSchema)]` above `Refund`
struct Refund {
    pub order: u64,
}

/// Refunds an order.
#[windlass::tool]
async fn refund(args: Refund) -> u64 {
    args.order
}
