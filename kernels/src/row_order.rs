//! Order of the rows of a stored matrix.

/// Order in which a file stores the rows of a matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RowOrder {
    /// Row `i` gives output `i`.
    #[default]
    Plain,
    /// Within each head of so many rows, row `2 i + h` gives output `i` of half `h`: the order of
    /// rotary pairs side by side, as GGUF stores the queries and keys of Llama models.
    Paired {
        /// Rows of a head; even.
        head: usize,
    },
}

impl RowOrder {
    /// The output that stored row `row` gives.
    pub fn output(self, row: usize) -> usize {
        match self {
            Self::Plain => row,
            Self::Paired { head } => {
                let place = row % head;
                row - place + place % 2 * (head / 2) + place / 2
            }
        }
    }

    /// The stored row that gives output `output`.
    pub fn row(self, output: usize) -> usize {
        match self {
            Self::Plain => output,
            Self::Paired { head } => {
                let place = output % head;
                output - place + place % (head / 2) * 2 + place / (head / 2)
            }
        }
    }

    /// Whether so many rows are whole heads.
    pub(crate) fn fills(self, rows: usize) -> bool {
        match self {
            Self::Plain => true,
            Self::Paired { head } => {
                head > 0 && head.is_multiple_of(2) && rows.is_multiple_of(head)
            }
        }
    }
}
