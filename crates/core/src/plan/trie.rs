//! Collisions of claims: a tree of name levels with queues at each node.
//!
//! A claim is in the queues of every node on the path to its name: at the name itself as [`NodeUse::Read`] or
//! [`NodeUse::Write`], above it as [`NodeUse::ReadBelow`] or [`NodeUse::WriteBelow`]. Two claims collide exactly if
//! they meet at a node in ways that exclude each other, so no claim is ever compared with all others: a place is clear
//! once, at each of its nodes, nothing that excludes it is older. Each node has one queue per use, in order of age; the
//! clear places are always the front of a queue, so each step of a queue is taken once.

use super::slab::{NONE, Slab};
use crate::claim::{Claim, Mode, Name};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};

/// The queues of all names that can collide: those of a session, of the calls inside one call, or of all sessions.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClaimSpace {
    /// The node of the session, above all names but the global ones.
    session: u32,
    /// The node above the global names; nothing but [`PlaceClaims::Everything`] claims it.
    global: u32,
}

/// The claims of a place.
#[derive(Clone, Copy)]
pub(super) enum PlaceClaims<'a> {
    /// These claims.
    Claims(&'a [Claim]),
    /// Only the global ones of these claims.
    Globals(&'a [Claim]),
    /// Everything that can be claimed: the claims are not known yet.
    Everything,
}

/// The owner of a place: the number that [`Trie`] returns, and its age.
#[derive(Clone, Copy)]
pub(super) struct PlaceOwner {
    pub(super) owner: u32,
    pub(super) age: u64,
}

/// The obstacle of a place.
pub(super) struct Blocked {
    /// The owner of the oldest place that excludes it.
    pub(super) by: u32,
    /// The name at which they meet, as text; empty for the session.
    pub(super) at: String,
}

#[derive(Debug, Default)]
pub(super) struct Trie {
    nodes: Slab<TrieNode>,
    requests: Slab<ClaimRequest>,
    places: Slab<TriePlace>,
}

#[derive(Debug, Default)]
struct TriePlace {
    owner: u32,
    /// The last of its requests, linked to the others.
    request: u32,
    /// How many of them are not clear.
    unclear: u32,
    age: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct ClaimRequest {
    node: u32,
    place: u32,
    older: u32,
    younger: u32,
    /// The next one of the same place.
    next: u32,
    age: u64,
    way: NodeUse,
    clear: bool,
}

#[derive(Debug)]
struct TrieNode {
    above: u32,
    /// By the hash of the level's text: whole texts are compared only to distinguish collisions.
    below: BTreeMap<u64, u32>,
    hash: u64,
    text: Box<str>,
    /// The next node with the same parent and hash.
    twin: u32,
    queues: [NodeQueue; 4],
    /// The requests at it and the nodes below it.
    uses: u32,
}

#[derive(Clone, Copy, Debug)]
struct NodeQueue {
    oldest: u32,
    youngest: u32,
    /// The oldest that is not clear.
    unclear: u32,
}

/// The use of a node by a claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum NodeUse {
    /// It reads something below.
    #[default]
    ReadBelow,
    /// It writes something below.
    WriteBelow,
    /// It reads all of it.
    Read,
    /// It writes all of it.
    Write,
}

impl NodeUse {
    /// The uses it excludes; exclusion is symmetric.
    fn excludes(self) -> &'static [NodeUse] {
        match self {
            NodeUse::ReadBelow => &[NodeUse::Write],
            NodeUse::WriteBelow => &[NodeUse::Read, NodeUse::Write],
            NodeUse::Read => &[NodeUse::WriteBelow, NodeUse::Write],
            NodeUse::Write => &[NodeUse::ReadBelow, NodeUse::WriteBelow, NodeUse::Read, NodeUse::Write],
        }
    }

    fn of(mode: Mode) -> (NodeUse, NodeUse) {
        match mode {
            Mode::Read => (NodeUse::ReadBelow, NodeUse::Read),
            Mode::Write => (NodeUse::WriteBelow, NodeUse::Write),
        }
    }
}

impl ClaimSpace {
    pub(super) const EMPTY: ClaimSpace = ClaimSpace { session: NONE, global: NONE };

    /// The number of nodes of an empty space.
    pub(super) fn roots(&self) -> usize {
        [self.session, self.global].iter().filter(|root| **root != NONE).count()
    }
}

impl Trie {
    /// Takes a place behind all older ones. Without claims there is none: [`NONE`].
    pub(super) fn enter(&mut self, space: &mut ClaimSpace, wanted: PlaceClaims<'_>, who: PlaceOwner) -> u32 {
        let place =
            self.places.insert(TriePlace { owner: who.owner, request: NONE, unclear: 0, age: who.age });
        self.request_all(space, wanted, place);
        if self.places[place].request == NONE {
            self.places.remove(place);
            return NONE;
        }
        place
    }

    /// Gives a place up; adds owners whose places are clear because of it to `cleared`.
    pub(super) fn leave(&mut self, place: u32, cleared: &mut Vec<u32>) {
        if place != NONE {
            let request = self.places.remove(place).request;
            self.withdraw_all(request, cleared);
        }
    }

    /// Narrows the claims of a place, so that no younger clear place can be in its way. The new place has the
    /// same age; [`NONE`] if there are no claims left.
    pub(super) fn narrow(
        &mut self,
        space: &mut ClaimSpace,
        old: u32,
        wanted: PlaceClaims<'_>,
        cleared: &mut Vec<u32>,
    ) -> u32 {
        let TriePlace { owner, age, .. } = self.places[old];
        // The new one is entered before the old one goes, so that the way is never free in between.
        let new = self.enter(space, wanted, PlaceOwner { owner, age });
        let mut at = if new == NONE { NONE } else { self.places[new].request };
        while at != NONE {
            let ClaimRequest { node, way, next, .. } = self.requests[at];
            self.obscure(node, way, age);
            at = next;
        }
        self.leave(old, cleared);
        new
    }

    /// Whether nothing older is in the way.
    pub(super) fn is_clear(&self, place: u32) -> bool {
        place == NONE || self.places[place].unclear == 0
    }

    /// The obstacle of a place that is not clear.
    pub(super) fn blocked(&self, place: u32) -> Option<Blocked> {
        if place == NONE {
            return None;
        }
        let mut at = self.places[place].request;
        while at != NONE {
            let request = &self.requests[at];
            if !request.clear {
                let older = self.oldest_excluded(request.node, request.way)?;
                let by = self.places[self.requests[older].place].owner;
                return Some(Blocked { by, at: self.path(request.node) });
            }
            at = request.next;
        }
        None
    }

    /// Whether this holds for the owner of any place before this one that excludes it.
    pub(super) fn any_before(&self, place: u32, mut is_so: impl FnMut(u32) -> bool) -> bool {
        let mut at = if place == NONE { NONE } else { self.places[place].request };
        while at != NONE {
            let ClaimRequest { node, way, age, clear, next, .. } = self.requests[at];
            for &excluded in way.excludes().iter().filter(|_| !clear) {
                let mut older = self.nodes[node].queues[excluded as usize].oldest;
                while older != NONE && self.requests[older].age < age {
                    if is_so(self.places[self.requests[older].place].owner) {
                        return true;
                    }
                    older = self.requests[older].younger;
                }
            }
            at = next;
        }
        false
    }

    /// Removes an empty space.
    pub(super) fn close(&mut self, space: ClaimSpace) {
        for root in [space.session, space.global] {
            if root != NONE {
                self.nodes.remove(root);
            }
        }
    }

    /// The number of nodes, requests and places.
    pub(super) fn len(&self) -> usize {
        self.nodes.len() + self.requests.len() + self.places.len()
    }

    fn request_all(&mut self, space: &mut ClaimSpace, wanted: PlaceClaims<'_>, place: u32) {
        match wanted {
            PlaceClaims::Claims(claims) => {
                for claim in claims {
                    self.request_claim(space, claim, place);
                }
            }
            PlaceClaims::Globals(claims) => {
                for claim in claims.iter().filter(|claim| claim.name.is_global()) {
                    self.request_claim(space, claim, place);
                }
            }
            PlaceClaims::Everything => {
                for root in [&mut space.session, &mut space.global] {
                    let root = self.root(root);
                    self.request(root, NodeUse::Write, place);
                }
            }
        }
    }

    fn request_claim(&mut self, space: &mut ClaimSpace, claim: &Claim, place: u32) {
        let root = if claim.name.is_global() { &mut space.global } else { &mut space.session };
        let mut node = self.root(root);
        let (below, at) = NodeUse::of(claim.mode);
        if claim.name != Name::SESSION {
            for level in claim.name.levels() {
                self.request(node, below, place);
                node = self.child(node, level);
            }
        }
        self.request(node, at, place);
    }

    fn root(&mut self, root: &mut u32) -> u32 {
        if *root == NONE {
            *root = self.nodes.insert(TrieNode::default());
        }
        *root
    }

    fn child(&mut self, above: u32, level: &str) -> u32 {
        // Its keys are fixed, so the same texts give the same numbers; collisions are hard to find.
        let mut hasher = DefaultHasher::new();
        hasher.write(level.as_bytes());
        let hash = hasher.finish();
        let first = self.nodes[above].below.get(&hash).copied().unwrap_or(NONE);
        let mut found = first;
        while found != NONE && *self.nodes[found].text != *level {
            found = self.nodes[found].twin;
        }
        if found == NONE {
            let node = TrieNode { above, hash, text: level.into(), twin: first, ..TrieNode::default() };
            found = self.nodes.insert(node);
            let above = &mut self.nodes[above];
            above.below.insert(hash, found);
            above.uses += 1;
        }
        found
    }

    /// Puts a request in its queue by age: at the end, unless a place was narrowed.
    fn request(&mut self, node: u32, way: NodeUse, place: u32) {
        let TriePlace { age, request: next, .. } = self.places[place];
        let mut older = self.nodes[node].queues[way as usize].youngest;
        while older != NONE && self.requests[older].age > age {
            older = self.requests[older].older;
        }
        // Several claims of one call take the same path.
        if older != NONE && self.requests[older].place == place {
            return;
        }
        let clear = self.oldest_excluded(node, way).is_none_or(|oldest| self.requests[oldest].age >= age);
        let queue = &mut self.nodes[node].queues[way as usize];
        let younger = if older == NONE { queue.oldest } else { self.requests[older].younger };
        let request =
            self.requests.insert(ClaimRequest { node, place, older, younger, next, age, way, clear });
        self.places[place].request = request;
        self.places[place].unclear += u32::from(!clear);
        let queue = &mut self.nodes[node].queues[way as usize];
        match older {
            NONE => queue.oldest = request,
            older => self.requests[older].younger = request,
        }
        match younger {
            NONE => queue.youngest = request,
            younger => self.requests[younger].older = request,
        }
        if !clear && (queue.unclear == NONE || queue.unclear == younger) {
            queue.unclear = request;
        }
        self.nodes[node].uses += 1;
    }

    /// A request of this age came: younger ones that it excludes are no longer clear.
    fn obscure(&mut self, node: u32, way: NodeUse, age: u64) {
        for &excluded in way.excludes() {
            let queue = self.nodes[node].queues[excluded as usize];
            let mut at = match queue.unclear {
                NONE => queue.youngest,
                unclear => self.requests[unclear].older,
            };
            while at != NONE && self.requests[at].age > age {
                let request = &mut self.requests[at];
                request.clear = false;
                self.places[request.place].unclear += 1;
                self.nodes[node].queues[excluded as usize].unclear = at;
                at = request.older;
            }
        }
    }

    /// The oldest request at a node that excludes this way.
    fn oldest_excluded(&self, node: u32, way: NodeUse) -> Option<u32> {
        let oldest = way.excludes().iter().map(|&other| self.nodes[node].queues[other as usize].oldest);
        oldest.filter(|&request| request != NONE).min_by_key(|&request| self.requests[request].age)
    }

    fn withdraw_all(&mut self, mut request: u32, cleared: &mut Vec<u32>) {
        while request != NONE {
            let ClaimRequest { next, node, way, .. } = self.requests[request];
            if self.withdraw(request) {
                for &waiting in way.excludes() {
                    self.clear(node, waiting, cleared);
                }
            }
            self.release(node);
            request = next;
        }
    }

    /// Removes a request from its queue. `true` if it was the oldest there, so that others may be clear now.
    fn withdraw(&mut self, number: u32) -> bool {
        let ClaimRequest { node, older, younger, way, .. } = self.requests.remove(number);
        let queue = &mut self.nodes[node].queues[way as usize];
        if queue.unclear == number {
            queue.unclear = younger;
        }
        match younger {
            NONE => queue.youngest = older,
            younger => self.requests[younger].older = older,
        }
        match older {
            NONE => queue.oldest = younger,
            older => self.requests[older].younger = younger,
        }
        older == NONE
    }

    /// Clears the waiting requests of this use at a node, as far as nothing older excludes them.
    fn clear(&mut self, node: u32, way: NodeUse, cleared: &mut Vec<u32>) {
        let mut at = self.nodes[node].queues[way as usize].unclear;
        while at != NONE {
            let age = self.requests[at].age;
            if self.oldest_excluded(node, way).is_some_and(|oldest| self.requests[oldest].age < age) {
                break;
            }
            self.requests[at].clear = true;
            let place = &mut self.places[self.requests[at].place];
            place.unclear -= 1;
            if place.unclear == 0 {
                cleared.push(place.owner);
            }
            at = self.requests[at].younger;
        }
        self.nodes[node].queues[way as usize].unclear = at;
    }

    /// A request left this node: unused nodes are removed.
    fn release(&mut self, mut node: u32) {
        loop {
            self.nodes[node].uses -= 1;
            let TrieNode { uses, above, .. } = self.nodes[node];
            if uses > 0 || above == NONE {
                return;
            }
            let gone = self.nodes.remove(node);
            self.unhook(node, &gone);
            node = above;
        }
    }

    /// Removes a node from its parent's list.
    fn unhook(&mut self, number: u32, gone: &TrieNode) {
        let first = self.nodes[gone.above].below.get(&gone.hash).copied().unwrap_or(NONE);
        if first == number {
            match gone.twin {
                NONE => self.nodes[gone.above].below.remove(&gone.hash),
                twin => self.nodes[gone.above].below.insert(gone.hash, twin),
            };
            return;
        }
        let mut before = first;
        while before != NONE && self.nodes[before].twin != number {
            before = self.nodes[before].twin;
        }
        if before != NONE {
            self.nodes[before].twin = gone.twin;
        }
    }

    fn path(&self, mut node: u32) -> String {
        let mut levels: Vec<&str> = Vec::new();
        while self.nodes[node].above != NONE {
            levels.push(&self.nodes[node].text);
            node = self.nodes[node].above;
        }
        levels.reverse();
        levels.join("/")
    }
}

impl Default for TrieNode {
    fn default() -> TrieNode {
        TrieNode {
            above: NONE,
            below: BTreeMap::new(),
            hash: 0,
            text: Box::default(),
            twin: NONE,
            queues: [NodeQueue { oldest: NONE, youngest: NONE, unclear: NONE }; 4],
            uses: 0,
        }
    }
}
