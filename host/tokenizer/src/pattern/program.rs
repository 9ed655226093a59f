//! Backtracking matcher that never tries the same thing twice.
//!
//! Whether the rest of a pattern matches at a position depends on nothing but the two. Each branch
//! point that failed at a position is remembered, for the whole text and not for one match only, so
//! that all matches of a text together take time in proportion to its length. Without that,
//! `\s*[\r\n]+|\s` walks to the end of a run of spaces once for each of them.

use std::collections::HashMap;

use super::class::Class;
use super::parse::PatternNode;
use crate::error::TokenizerError;
use crate::limits::Meter;

/// Most instructions of a program.
const PROGRAM_MAX: usize = 4096;
/// Instructions between two looks at the meter, and the work that they count for.
const STEPS: usize = 1024;
const STEPS_COST: usize = 128;
/// Positions that one page of the memory covers.
const PAGE: usize = 1024;

enum Instruction {
    /// The next character must be of the class.
    Class(usize),
    /// The next character must be of the class, or must not if `negated`; the position stays.
    Ahead {
        class: usize,
        negated: bool,
    },
    /// Try `first`, then `second`. `slot` numbers the branch points.
    Branch {
        first: usize,
        second: usize,
        slot: usize,
    },
    Jump(usize),
    /// The position must be the start of the text.
    Start,
    /// The position must be the end of the text.
    End,
    Match,
}

/// A compiled pattern.
pub(crate) struct Program {
    code: Vec<Instruction>,
    classes: Vec<Class>,
    /// Number of branch points.
    slots: usize,
}

impl Program {
    /// Compile a pattern; `None` if it is too large, or can match the empty text.
    pub(super) fn new(node: &PatternNode) -> Option<Self> {
        if node.is_nullable() {
            return None;
        }
        let mut compiler = Compiler::default();
        compiler.emit(node)?;
        compiler.push(Instruction::Match)?;
        Some(Self {
            code: compiler.code,
            classes: compiler.classes,
            slots: compiler.slots,
        })
    }
}

#[derive(Default)]
struct Compiler {
    code: Vec<Instruction>,
    classes: Vec<Class>,
    by_source: HashMap<String, usize>,
    slots: usize,
}

impl Compiler {
    fn push(&mut self, instruction: Instruction) -> Option<usize> {
        let at = self.code.len();
        self.code.push(instruction);
        (at < PROGRAM_MAX).then_some(at)
    }

    fn class(&mut self, source: &str) -> Option<usize> {
        if let Some(&known) = self.by_source.get(source) {
            return Some(known);
        }
        let class = Class::new(source)?;
        self.classes.push(class);
        let at = self.classes.len() - 1;
        self.by_source.insert(source.to_owned(), at);
        Some(at)
    }

    /// A branch whose targets are set later.
    fn branch(&mut self) -> Option<usize> {
        let slot = self.slots;
        self.slots += 1;
        self.push(Instruction::Branch {
            first: 0,
            second: 0,
            slot,
        })
    }

    fn aim(&mut self, branch: usize, preferred: usize, other: usize, lazy: bool) {
        if let Some(Instruction::Branch { first, second, .. }) = self.code.get_mut(branch) {
            (*first, *second) = match lazy {
                false => (preferred, other),
                true => (other, preferred),
            };
        }
    }

    fn emit(&mut self, node: &PatternNode) -> Option<()> {
        match node {
            PatternNode::Class(source) => {
                let class = self.class(source)?;
                self.push(Instruction::Class(class))?;
            }
            PatternNode::Ahead { class, negated } => {
                let class = self.class(class)?;
                self.push(Instruction::Ahead {
                    class,
                    negated: *negated,
                })?;
            }
            PatternNode::Start => {
                self.push(Instruction::Start)?;
            }
            PatternNode::End => {
                self.push(Instruction::End)?;
            }
            PatternNode::Sequence(nodes) => nodes.iter().try_for_each(|node| self.emit(node))?,
            PatternNode::Alternatives(nodes) => self.emit_alternatives(nodes)?,
            PatternNode::Repeat {
                node,
                min,
                max,
                lazy,
            } => self.emit_repeat(node, *min, *max, *lazy)?,
        }
        Some(())
    }

    fn emit_alternatives(&mut self, nodes: &[PatternNode]) -> Option<()> {
        let mut ends = Vec::new();
        for (index, node) in nodes.iter().enumerate() {
            if index + 1 == nodes.len() {
                self.emit(node)?;
                break;
            }
            let branch = self.branch()?;
            self.emit(node)?;
            ends.push(self.push(Instruction::Jump(0))?);
            let next = self.code.len();
            self.aim(branch, branch + 1, next, false);
        }
        let end = self.code.len();
        for jump in ends {
            self.code[jump] = Instruction::Jump(end);
        }
        Some(())
    }

    fn emit_repeat(
        &mut self,
        node: &PatternNode,
        min: u32,
        max: Option<u32>,
        lazy: bool,
    ) -> Option<()> {
        for _ in 0..min {
            self.emit(node)?;
        }
        let Some(max) = max else {
            let branch = self.branch()?;
            self.emit(node)?;
            self.push(Instruction::Jump(branch))?;
            let end = self.code.len();
            self.aim(branch, branch + 1, end, lazy);
            return Some(());
        };
        let mut branches = Vec::new();
        for _ in min..max {
            branches.push(self.branch()?);
            self.emit(node)?;
        }
        let end = self.code.len();
        for branch in branches {
            self.aim(branch, branch + 1, end, lazy);
        }
        Some(())
    }
}

/// The search for all matches of a program in one text.
pub(super) struct MatchSearch<'p, 't> {
    program: &'p Program,
    text: &'t str,
    failed: Failed,
    /// Alternatives not yet tried: instruction and position.
    stack: Vec<(usize, usize)>,
    steps: usize,
}

impl<'p, 't> MatchSearch<'p, 't> {
    pub(super) fn new(program: &'p Program, text: &'t str) -> Self {
        Self {
            program,
            text,
            failed: Failed::new(program.slots),
            stack: Vec::new(),
            steps: 0,
        }
    }

    /// The first match that begins at `from` or later. Calls must come with rising `from`, none below
    /// the end of the match before.
    pub(super) fn next(
        &mut self,
        from: usize,
        meter: &mut Meter<'_>,
    ) -> Result<Option<(usize, usize)>, TokenizerError> {
        let rest = self.text.get(from..).unwrap_or_default();
        for (offset, _) in rest.char_indices() {
            let start = from + offset;
            self.failed.forget_before(start);
            if let Some(end) = self.match_at(start, meter)? {
                self.failed.forget_at(end);
                return Ok(Some((start, end)));
            }
        }
        Ok(None)
    }

    fn match_at(
        &mut self,
        start: usize,
        meter: &mut Meter<'_>,
    ) -> Result<Option<usize>, TokenizerError> {
        let text = self.text;
        self.stack.clear();
        let (mut at, mut position) = (0, start);
        loop {
            self.steps += 1;
            if self.steps == STEPS {
                self.steps = 0;
                meter.spend(STEPS_COST)?;
            }
            let character = || text.get(position..)?.chars().next();
            let goes_on = match self.program.code[at] {
                Instruction::Class(class) => match character() {
                    Some(next) if self.program.classes[class].contains(next) => {
                        position += next.len_utf8();
                        at += 1;
                        true
                    }
                    _ => false,
                },
                Instruction::Ahead { class, negated } => {
                    let found =
                        character().is_some_and(|next| self.program.classes[class].contains(next));
                    at += 1;
                    found != negated
                }
                Instruction::Branch {
                    first,
                    second,
                    slot,
                } => {
                    let fresh = self.failed.note(slot, position);
                    if fresh {
                        self.stack.push((second, position));
                        at = first;
                    }
                    fresh
                }
                Instruction::Jump(target) => {
                    at = target;
                    true
                }
                Instruction::Start | Instruction::End => {
                    let start = matches!(self.program.code[at], Instruction::Start);
                    at += 1;
                    position == if start { 0 } else { self.text.len() }
                }
                Instruction::Match => return Ok(Some(position)),
            };
            if !goes_on {
                match self.stack.pop() {
                    Some(next) => (at, position) = next,
                    None => return Ok(None),
                }
            }
        }
    }
}

/// Branch points that were entered, by position. All of them failed but those on the way to the last
/// match, which stand at its end or before.
struct Failed {
    slots: usize,
    /// Pages from `base` on; earlier pages were released.
    pages: std::collections::VecDeque<Option<Box<[u64]>>>,
    base: usize,
    spare: Option<Box<[u64]>>,
}

impl Failed {
    fn new(slots: usize) -> Self {
        Self {
            slots,
            pages: std::collections::VecDeque::new(),
            base: 0,
            spare: None,
        }
    }

    /// Note a branch point. Whether it is new.
    fn note(&mut self, slot: usize, position: usize) -> bool {
        let page = position / PAGE - self.base;
        while self.pages.len() <= page {
            self.pages.push_back(None);
        }
        let words = (PAGE * self.slots).div_ceil(64);
        let spare = &mut self.spare;
        let bits = self.pages[page].get_or_insert_with(|| match spare.take() {
            Some(mut page) => {
                page.fill(0);
                page
            }
            None => vec![0; words].into_boxed_slice(),
        });
        let bit = position % PAGE * self.slots + slot;
        let word = &mut bits[bit / 64];
        let mask = 1 << (bit % 64);
        let fresh = *word & mask == 0;
        *word |= mask;
        fresh
    }

    /// Release the pages before a position, since no position before it will be asked for.
    fn forget_before(&mut self, position: usize) {
        while self.base < position / PAGE {
            self.base += 1;
            if let Some(page) = self.pages.pop_front().flatten() {
                self.spare = Some(page);
            }
        }
    }

    /// A match ended here: its branch points did not fail.
    fn forget_at(&mut self, position: usize) {
        self.forget_before(position);
        if let Some(Some(bits)) = self.pages.front_mut() {
            let from = position % PAGE * self.slots;
            for bit in from..from + self.slots {
                bits[bit / 64] &= !(1 << (bit % 64));
            }
        }
    }
}
