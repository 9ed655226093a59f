//! Arithmetic: a parser by recursive descent that computes as it reads.
//!
//! ```text
//! sum     = product (("+" | "-") product)*
//! product = signed (("*" | "/" | "%") signed)*
//! signed  = ("+" | "-") signed | power
//! power   = atom ("^" signed)?
//! atom    = number | constant | function "(" sum ")" | "(" sum ")"
//! ```

/// Deepest nesting; a model that nests deeper is lost anyway.
const MAX_DEPTH: usize = 100;

/// The value of an expression, or what is wrong with it.
pub fn value(text: &str) -> Result<f64, String> {
    let mut reader = Reader {
        text,
        at: 0,
        depth: 0,
    };
    let value = reader.sum()?;
    reader.skip_blanks();
    if reader.at < text.len() {
        return Err(reader.unexpected("an operator"));
    }
    match value.is_finite() {
        true => Ok(value),
        false => Err("the value is not a finite number".to_owned()),
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl Reader<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn skip_blanks(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    /// Take one of these characters if it comes next.
    fn take(&mut self, wanted: &[char]) -> Option<char> {
        self.skip_blanks();
        let next = self.rest().chars().next().filter(|c| wanted.contains(c))?;
        self.at += next.len_utf8();
        Some(next)
    }

    fn unexpected(&self, wanted: &str) -> String {
        let place = self.text[..self.at].chars().count() + 1;
        match self.rest().chars().next() {
            Some(found) => format!("`{found}` at position {place} should be {wanted}"),
            None => format!("the expression ends where {wanted} should be"),
        }
    }

    fn nested<T>(&mut self, read: fn(&mut Self) -> Result<T, String>) -> Result<T, String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err("the expression is nested too deeply".to_owned());
        }
        let value = read(self);
        self.depth -= 1;
        value
    }

    fn sum(&mut self) -> Result<f64, String> {
        let mut value = self.product()?;
        while let Some(operator) = self.take(&['+', '-', '−']) {
            let right = self.product()?;
            value = if operator == '+' {
                value + right
            } else {
                value - right
            };
        }
        Ok(value)
    }

    fn product(&mut self) -> Result<f64, String> {
        let mut value = self.nested(Self::signed)?;
        while let Some(operator) = self.take(&['*', '×', '/', '÷', '%']) {
            let right = self.nested(Self::signed)?;
            value = match operator {
                '*' | '×' => value * right,
                _ if right == 0.0 => return Err("division by zero".to_owned()),
                '%' => value % right,
                _ => value / right,
            };
        }
        Ok(value)
    }

    fn signed(&mut self) -> Result<f64, String> {
        match self.take(&['+', '-', '−']) {
            Some('+') => self.nested(Self::signed),
            Some(_) => Ok(-self.nested(Self::signed)?),
            None => self.power(),
        }
    }

    fn power(&mut self) -> Result<f64, String> {
        let base = self.atom()?;
        match self.take(&['^']) {
            Some(_) => Ok(base.powf(self.nested(Self::signed)?)),
            None => Ok(base),
        }
    }

    fn atom(&mut self) -> Result<f64, String> {
        if self.take(&['(']).is_some() {
            return self.closed();
        }
        self.skip_blanks();
        let rest = self.rest();
        let digits = rest.len()
            - rest
                .trim_start_matches(|c: char| c.is_ascii_digit() || c == '.')
                .len();
        if digits > 0 {
            let number = rest[..digits].parse();
            let number = number.map_err(|_| self.unexpected("a number"))?;
            self.at += digits;
            return Ok(number);
        }
        let letters = rest.len()
            - rest
                .trim_start_matches(|c: char| c.is_ascii_alphabetic())
                .len();
        let name = rest[..letters].to_ascii_lowercase();
        let function: fn(f64) -> f64 = match name.as_str() {
            "pi" | "e" => {
                self.at += letters;
                return Ok(if name == "pi" {
                    std::f64::consts::PI
                } else {
                    std::f64::consts::E
                });
            }
            "sqrt" => f64::sqrt,
            "abs" => f64::abs,
            "round" => f64::round,
            "floor" => f64::floor,
            "ceil" => f64::ceil,
            "ln" => f64::ln,
            "exp" => f64::exp,
            "sin" => f64::sin,
            "cos" => f64::cos,
            "tan" => f64::tan,
            _ => return Err(self.unexpected("a number or `(`")),
        };
        self.at += letters;
        match self.take(&['(']) {
            Some(_) => Ok(function(self.closed()?)),
            None => Err(self.unexpected("`(`")),
        }
    }

    /// Rest of an expression in parentheses.
    fn closed(&mut self) -> Result<f64, String> {
        let value = self.nested(Self::sum)?;
        match self.take(&[')']) {
            Some(_) => Ok(value),
            None => Err(self.unexpected("`)`")),
        }
    }
}
