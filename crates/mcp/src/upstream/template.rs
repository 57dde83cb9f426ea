//! Templates of resource addresses (RFC 6570): which server an address belongs to is read backwards from them.

/// Whether an address can be one of this template. A simple expression stands for a part of a path; one with an operator (`{+path}`, `{?query}`)
/// for any text that begins as the operator says, or for none. Whoever gives the address decides what it means: this only finds the server to ask.
pub(super) fn fits(template: &str, uri: &str) -> bool {
    let mut rest = template;
    // The places in the address that the pieces so far can end at.
    let mut ends = vec![false; uri.len() + 1];
    ends[0] = true;
    loop {
        let (literal, expression, behind) = match rest.split_once('{') {
            None => (rest, None, ""),
            Some((literal, more)) => match more.split_once('}') {
                Some((expression, behind)) => (literal, Some(expression), behind),
                // No template at all.
                None => return false,
            },
        };
        ends = behind_literal(&ends, literal, uri);
        let Some(expression) = expression else { return ends[uri.len()] };
        ends = behind_expression(&ends, expression, uri);
        if !ends.contains(&true) {
            return false;
        }
        rest = behind;
    }
}

fn behind_literal(ends: &[bool], literal: &str, uri: &str) -> Vec<bool> {
    let mut next = vec![false; ends.len()];
    for (at, _) in ends.iter().enumerate().filter(|(_, is_end)| **is_end) {
        if uri.as_bytes()[at..].starts_with(literal.as_bytes()) {
            next[at + literal.len()] = true;
        }
    }
    next
}

fn behind_expression(ends: &[bool], expression: &str, uri: &str) -> Vec<bool> {
    let operator = expression.bytes().next().filter(|first| b"+#./;?&".contains(first));
    // Of most operators the text itself begins with the operator.
    let begins = |byte: u8| operator.is_none_or(|operator| operator == b'+' || operator == byte);
    let goes_on = |byte: u8| operator.is_some() || !b"/?#".contains(&byte);
    let mut next = vec![false; ends.len()];
    let mut is_inside = false;
    for (at, is_end) in ends.iter().enumerate() {
        // One with an operator may stand for nothing.
        next[at] = is_inside || (operator.is_some() && *is_end);
        let byte = uri.as_bytes().get(at);
        is_inside = byte.is_some_and(|byte| goes_on(*byte) && (is_inside || (*is_end && begins(*byte))));
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_found_by_the_templates_of_their_servers() {
        for (template, uri, expected) in [
            ("test://template/{id}/data", "test://template/123/data", true),
            ("test://template/{id}/data", "test://template/a/b/data", false),
            ("test://template/{id}/data", "test://template//data", false),
            ("test://template/{id}/data", "test://template/123/data/", false),
            ("file://{+path}", "file:///a/b?c", true),
            ("db://{table}{?limit,after}", "db://users", true),
            ("db://{table}{?limit,after}", "db://users?limit=7", true),
            ("db://{table}{?limit,after}", "db://users/7", false),
            ("db://{table}{/rows*}", "db://users/7/8", true),
            ("db://{table}{/rows*}", "db://users?7", false),
            ("{scheme}://{host}", "a://b", true),
            ("a{x}a{y}a", "aaaaa", true),
            ("a{x}a{y}a", "aaaa", false),
            ("exact://one", "exact://one", true),
            ("exact://one", "exact://one2", false),
            ("broken://{id", "broken://{id", false),
            ("ü://{x}", "ü://世界", true),
        ] {
            assert_eq!(fits(template, uri), expected, "{template} {uri}");
        }
    }
}
