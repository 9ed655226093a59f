//! Models that were split into several files: `NAME-00001-of-00003.gguf` and so on. The first has the
//! metadata; each has some of the tensors and says which part it is.

use super::{Gguf, GgufError};

/// Files of one model.
const PARTS_MAX: u64 = 1 << 10;
const NUMBER: &str = "split.no";
const COUNT: &str = "split.count";
const TENSORS: &str = "split.tensors.count";
/// Digits of the numbers in names.
const DIGITS: usize = 5;

/// The name of a file that is a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PartName<'a> {
    stem: &'a str,
    /// From 1.
    pub(crate) number: usize,
    /// Number of parts.
    pub(crate) count: usize,
}

impl<'a> PartName<'a> {
    /// Read `STEM-00001-of-00003.gguf`.
    pub(crate) fn parse(file: &'a str) -> Option<Self> {
        let digits = |text: &str| {
            let right = text.len() == DIGITS && text.bytes().all(|byte| byte.is_ascii_digit());
            right.then(|| text.parse().ok()).flatten()
        };
        let (rest, count) = file.strip_suffix(".gguf")?.rsplit_once("-of-")?;
        let (stem, number) = rest.rsplit_once('-')?;
        Some(Self {
            stem,
            number: digits(number)?,
            count: digits(count)?,
        })
    }

    /// The name of another part.
    pub(crate) fn other(self, number: usize) -> String {
        let Self { stem, count, .. } = self;
        format!("{stem}-{number:05}-of-{count:05}.gguf")
    }
}

/// The file to open of a folder's GGUF files: the only one, or the first part of the only model.
/// `Err` has the candidates if there are several. Projectors of models that also see do not count.
pub(crate) fn sole_file(files: Vec<String>) -> Result<Option<String>, Vec<String>> {
    let mut models: Vec<String> = files
        .into_iter()
        .filter(|file| !file.starts_with("mmproj"))
        .filter(|file| PartName::parse(file).is_none_or(|part| part.number == 1))
        .collect();
    models.sort_unstable();
    match models.len() {
        0 | 1 => Ok(models.pop()),
        _ => Err(models),
    }
}

impl Gguf {
    /// Number of files of the model, this one included.
    pub(crate) fn parts(&self) -> Result<usize, GgufError> {
        let count = self.metadata.count(COUNT)?.unwrap_or(1).max(1);
        if count > PARTS_MAX {
            return Err(GgufError::Limit {
                what: "files",
                found: count,
                limit: PARTS_MAX,
            });
        }
        Ok(usize::try_from(count).unwrap_or(usize::MAX))
    }

    /// Check that this is part `number`, from 0, of `count`.
    pub(crate) fn check_part(&self, number: usize, count: usize) -> Result<(), GgufError> {
        for (key, expected) in [(NUMBER, number as u64), (COUNT, count as u64)] {
            let found = self.metadata.count(key)?;
            if found != Some(expected) {
                let found = found.map_or("missing".to_owned(), |found| found.to_string());
                return Err(GgufError::Entry {
                    key: key.to_owned(),
                    problem: format!("is {found}; expected {expected} in this part"),
                });
            }
        }
        Ok(())
    }

    /// Add the tensors of the next part.
    pub(crate) fn append(&mut self, part: Self) -> Result<(), GgufError> {
        let file = self.files.len();
        self.files.extend(part.files);
        for mut tensor in part.tensors {
            tensor.file = file;
            let number = self.tensors.len();
            if self.by_name.insert(tensor.name.clone(), number).is_some() {
                return Err(GgufError::Tensor {
                    tensor: tensor.name,
                    problem: "is in two of the files".to_owned(),
                });
            }
            self.tensors.push(tensor);
        }
        Ok(())
    }

    /// Whether all parts together have as many tensors as the first says.
    pub(crate) fn check_whole(&self) -> Result<(), GgufError> {
        let found = self.tensors.len() as u64;
        match self.metadata.count(TENSORS)? {
            Some(expected) if expected != found => Err(GgufError::Entry {
                key: TENSORS.to_owned(),
                problem: format!("is {expected}; all files together have {found} tensors"),
            }),
            _ => Ok(()),
        }
    }
}
