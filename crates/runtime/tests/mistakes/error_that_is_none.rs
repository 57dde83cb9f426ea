//! error: `Refused` cannot be the error of a tool
//! error: return `Result<_, windlass::ToolError>`, or implement `std::error::Error` for `Refused`
#[derive(Debug)]
pub struct Refused;

/// Refunds an order.
#[windlass::tool]
async fn refund(order: u64) -> Result<u64, Refused> {
    if order == 0 { Err(Refused) } else { Ok(order) }
}
