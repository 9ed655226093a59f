//! Writes GGUF files, right ones and wrong ones.

/// A file in the making. What is public may be spoiled.
#[derive(Clone)]
pub struct GgufFile {
    pub version: u32,
    /// Instead of the true number.
    pub tensor_count: Option<u64>,
    pub entry_count: Option<u64>,
    pub alignment: usize,
    /// Keys with types and bytes of values.
    pub entries: Vec<(Vec<u8>, Vec<u8>)>,
    pub tensors: Vec<Tensor>,
}

#[derive(Clone)]
pub struct Tensor {
    pub name: Vec<u8>,
    /// The fastest first.
    pub sides: Vec<u64>,
    pub kind: u32,
    /// Instead of the next free place.
    pub offset: Option<u64>,
    pub data: Vec<u8>,
}

pub const F32: u32 = 0;

impl Default for GgufFile {
    fn default() -> Self {
        Self {
            version: 3,
            tensor_count: None,
            entry_count: None,
            alignment: 32,
            entries: Vec::new(),
            tensors: Vec::new(),
        }
    }
}

impl GgufFile {
    /// A key with a value that [`text`] or its neighbours made.
    pub fn entry(&mut self, key: &str, value: Vec<u8>) {
        self.entries.push((key.as_bytes().to_vec(), value));
    }

    /// A tensor; `shape` has the slowest side first.
    pub fn tensor(&mut self, name: &str, shape: &[u64], kind: u32, data: Vec<u8>) {
        self.tensors.push(Tensor {
            name: name.as_bytes().to_vec(),
            sides: shape.iter().rev().copied().collect(),
            kind,
            offset: None,
            data,
        });
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(self.version.to_le_bytes());
        let count = |found: Option<u64>, true_count: usize| found.unwrap_or(true_count as u64);
        out.extend(count(self.tensor_count, self.tensors.len()).to_le_bytes());
        out.extend(count(self.entry_count, self.entries.len()).to_le_bytes());
        for (key, value) in &self.entries {
            out.extend(sized(key));
            out.extend(value);
        }
        let mut next = 0;
        for tensor in &self.tensors {
            out.extend(sized(&tensor.name));
            out.extend((tensor.sides.len() as u32).to_le_bytes());
            for side in &tensor.sides {
                out.extend(side.to_le_bytes());
            }
            out.extend(tensor.kind.to_le_bytes());
            out.extend(tensor.offset.unwrap_or(next).to_le_bytes());
            next += tensor.data.len().next_multiple_of(self.alignment) as u64;
        }
        out.resize(out.len().next_multiple_of(self.alignment), 0);
        for tensor in &self.tensors {
            out.extend(&tensor.data);
            out.resize(out.len().next_multiple_of(self.alignment), 0);
        }
        out
    }
}

/// A length and bytes.
pub fn sized(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u64).to_le_bytes()[..], bytes].concat()
}

fn value(kind: u32, bytes: &[u8]) -> Vec<u8> {
    [&kind.to_le_bytes()[..], bytes].concat()
}

pub fn text(text: &str) -> Vec<u8> {
    value(8, &sized(text.as_bytes()))
}

pub fn u32(number: u32) -> Vec<u8> {
    value(4, &number.to_le_bytes())
}

pub fn u16(number: u16) -> Vec<u8> {
    value(2, &number.to_le_bytes())
}

pub fn f32(number: f32) -> Vec<u8> {
    value(6, &number.to_le_bytes())
}

pub fn bool(flag: bool) -> Vec<u8> {
    value(7, &[u8::from(flag)])
}

/// An array that says it has `count` elements of a type.
pub fn array(kind: u32, count: u64, elements: &[u8]) -> Vec<u8> {
    let head = [&kind.to_le_bytes()[..], &count.to_le_bytes()[..]].concat();
    value(9, &[&head[..], elements].concat())
}

pub fn texts(texts: &[&str]) -> Vec<u8> {
    let elements: Vec<u8> = texts
        .iter()
        .flat_map(|text| sized(text.as_bytes()))
        .collect();
    array(8, texts.len() as u64, &elements)
}

pub fn i32s(numbers: &[i32]) -> Vec<u8> {
    let elements: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
    array(5, numbers.len() as u64, &elements)
}

pub fn f32s(numbers: &[f32]) -> Vec<u8> {
    let elements: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
    array(6, numbers.len() as u64, &elements)
}
