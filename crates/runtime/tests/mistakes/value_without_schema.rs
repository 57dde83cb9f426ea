//! error: `Refunded` cannot be the value of a tool
//! error: write `#[derive(serde::Serialize, schemars::JsonSchema)]` above `Refunded`
pub struct Refunded {
    pub cents: u64,
}

/// Refunds an order.
#[windlass::tool]
async fn refund(order: u64) -> Refunded {
    Refunded { cents: order }
}
