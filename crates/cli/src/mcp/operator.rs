//! The operator at the terminal, who decides what a tool of another server may do. What the tool claims of itself only shapes
//! the proposal.

use super::entry::{ToolApproval, ToolProposal};
use std::io::{BufRead, IsTerminal, StderrLock, StdinLock, Write};
use windlass::Limits;
use windlass::tool::ClaimTemplate;

/// A person who answers questions, line by line.
pub struct Operator<R, W> {
    input: R,
    output: W,
}

/// The decision about one proposal.
#[derive(Debug, PartialEq, Eq)]
pub enum ProposalDecision {
    /// The tool is accepted with the terms of the proposal, which may have been changed.
    Accept,
    /// The tool and all behind it are accepted as proposed.
    AcceptAll,
    /// The tool is not accepted.
    LeaveOut,
    /// Nothing is written.
    Quit,
}

impl Operator<StdinLock<'static>, StderrLock<'static>> {
    /// The person at the terminal; `None` if nobody is there.
    pub fn at_terminal() -> Option<Self> {
        let (input, output) = (std::io::stdin(), std::io::stderr());
        input.is_terminal().then(|| Operator { input: input.lock(), output: output.lock() })
    }
}

impl<R: BufRead, W: Write> Operator<R, W> {
    /// Asks for a yes. Anything else is a no.
    pub fn agrees(&mut self, question: &str) -> std::io::Result<bool> {
        let answer = self.answer(&format!("{question} [y/N] "))?;
        Ok(answer.is_some_and(|answer| matches!(answer.as_str(), "y" | "Y" | "yes")))
    }

    /// Asks about one proposal, and takes the changes.
    pub fn decide(
        &mut self,
        proposal: &mut ToolProposal,
        limits: &Limits,
    ) -> std::io::Result<ProposalDecision> {
        loop {
            let question = "  Accept it so? [y] yes, [c] change, [s] leave it out, [a] yes for all others too, [q] quit: ";
            let Some(answer) = self.answer(question)? else { return Ok(ProposalDecision::Quit) };
            match answer.as_str() {
                "y" | "yes" => return Ok(ProposalDecision::Accept),
                "a" => return Ok(ProposalDecision::AcceptAll),
                "s" => return Ok(ProposalDecision::LeaveOut),
                "q" => return Ok(ProposalDecision::Quit),
                "c" => {
                    if !self.change(proposal, limits)? {
                        return Ok(ProposalDecision::Quit);
                    }
                    writeln!(self.output, "  {proposal}")?;
                }
                _ => {}
            }
        }
    }

    /// Asks for each term; an empty line keeps it. `false` at the end of the input.
    fn change(&mut self, proposal: &mut ToolProposal, limits: &Limits) -> std::io::Result<bool> {
        let class = "  Class (read: it only looks; keyed: repeating it is safe; once: it is never repeated)";
        let read_class = |text: &str| {
            let known = ["read", "keyed", "once"].into_iter().find(|class| *class == text);
            known.ok_or_else(|| "it is read, keyed or once".to_string())
        };
        let Some(class) = self.term(class, proposal.class, proposal.class, read_class)? else {
            return Ok(false);
        };
        proposal.class = class;
        let shown = proposal.claims.join(", ");
        let shown = if shown.is_empty() { "none" } else { &shown };
        let claims =
            "  Claims (such as `write mcp:NAME`, separated by commas; none: it runs beside anything)";
        let read_claims = |text: &str| {
            let claims =
                text.split(',').map(|claim| claim.trim().to_string()).filter(|claim| claim != "none");
            let claims: Vec<String> = claims.collect();
            let wrong = claims.iter().find_map(|claim| ClaimTemplate::parse(claim, &limits.call()).err());
            wrong.map_or(Ok(claims), |problem| Err(problem.to_string()))
        };
        let Some(claims) = self.term(claims, shown, proposal.claims.clone(), read_claims)? else {
            return Ok(false);
        };
        proposal.claims = claims;
        let approval = "  Approval (never: nobody is asked; policy: a person, unless a rule allows it; ask: always a person)";
        let Some(approval) =
            self.term(approval, proposal.approval.as_str(), proposal.approval, ToolApproval::parse)?
        else {
            return Ok(false);
        };
        proposal.approval = approval;
        Ok(true)
    }

    /// Asks for one term until the answer can be used; `None` at the end of the input.
    fn term<T: Clone>(
        &mut self,
        question: &str,
        shown: &str,
        now: T,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> std::io::Result<Option<T>> {
        loop {
            let Some(answer) = self.answer(&format!("{question} [{shown}]: "))? else { return Ok(None) };
            if answer.is_empty() {
                return Ok(Some(now));
            }
            match read(&answer) {
                Ok(term) => return Ok(Some(term)),
                Err(why) => writeln!(self.output, "  {why}")?,
            }
        }
    }

    /// The next line; `None` at the end of the input.
    fn answer(&mut self, question: &str) -> std::io::Result<Option<String>> {
        write!(self.output, "{question}")?;
        self.output.flush()?;
        let mut line = String::new();
        let count = self.input.read_line(&mut line)?;
        Ok((count > 0).then(|| line.trim().to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn decided(typed: &str) -> (ProposalDecision, ToolProposal, String) {
        let mut proposal = ToolProposal::of("shop", "pay", &json!({}));
        let mut operator = Operator { input: typed.as_bytes(), output: Vec::new() };
        let decision = operator.decide(&mut proposal, &Limits::default()).expect("it can be written");
        (decision, proposal, String::from_utf8(operator.output).expect("text"))
    }

    #[test]
    fn whoever_says_nothing_accepts_nothing() {
        for (typed, expected) in [
            ("", ProposalDecision::Quit),
            ("what\n", ProposalDecision::Quit),
            ("\n\nq\n", ProposalDecision::Quit),
            ("c\nread\n", ProposalDecision::Quit),
            ("s\n", ProposalDecision::LeaveOut),
            ("y\n", ProposalDecision::Accept),
            ("a\n", ProposalDecision::AcceptAll),
        ] {
            assert_eq!(decided(typed).0, expected, "{typed:?}");
        }
    }

    #[test]
    fn each_term_can_be_changed_and_mistakes_are_asked_about_again() {
        let (decision, proposal, told) =
            decided("c\nstepped\nread\nnowhere\nread mcp:shop, write file:{path}\nnone\nnever\ny\n");
        assert_eq!(decision, ProposalDecision::Accept, "{told}");
        assert_eq!((proposal.class, proposal.approval), ("read", ToolApproval::Never), "{told}");
        assert_eq!(proposal.claims, ["read mcp:shop", "write file:{path}"]);
        assert!(told.contains("it is read, keyed or once"), "{told}");
        let (_, proposal, _) = decided("c\n\nnone\n\ny\n");
        assert_eq!(
            (proposal.class, proposal.approval),
            ("once", ToolApproval::Policy),
            "an empty line keeps it"
        );
        assert!(proposal.claims.is_empty());
    }
}
