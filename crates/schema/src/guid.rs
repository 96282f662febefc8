//! The GUID of a schema: the MD5 of its text without white space, written as a UUID. The registries of others compute
//! it in the same way, so one schema has one GUID everywhere. Knows nothing of versions or ids.
//!
//! MD5 (RFC 1321) is no protection against forgery: whoever looks a schema up by it must not take it for proof.

use std::{fmt, str::FromStr, sync::LazyLock};

/// What a schema is called in every registry that has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Guid([u8; 16]);

/// It is not written as a GUID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a GUID, which is written like 89791762-2336-4186-9674-299b90a802e2")]
pub struct GuidError;

impl Guid {
    pub(crate) fn of(text: &str) -> Guid {
        Guid(md5(text.as_bytes()))
    }
}

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            if let 4 | 6 | 8 | 10 = index {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl FromStr for Guid {
    type Err = GuidError;

    fn from_str(text: &str) -> Result<Guid, GuidError> {
        let groups: Vec<&str> = text.split('-').collect();
        let lens: Vec<usize> = groups.iter().map(|group| group.len()).collect();
        let digits = groups.concat();
        if lens != [8, 4, 4, 4, 12] || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(GuidError);
        }
        let number = u128::from_str_radix(&digits, 16).map_err(|_| GuidError)?;
        Ok(Guid(number.to_be_bytes()))
    }
}

/// How far each of the 64 operations rotates, by round and place in it.
const ROTATIONS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];

/// The first 32 bits of the fractions of sines.
static SINES: LazyLock<[u32; 64]> = LazyLock::new(|| {
    std::array::from_fn(|index| (((index + 1) as f64).sin().abs() * 4_294_967_296.0) as u32)
});

fn md5(bytes: &[u8]) -> [u8; 16] {
    let mut padded = bytes.to_vec();
    padded.push(0x80);
    padded.resize(padded.len().next_multiple_of(64), 0);
    if padded.len() - bytes.len() < 9 {
        padded.resize(padded.len() + 64, 0);
    }
    let end = padded.len() - 8;
    padded[end..].copy_from_slice(&(bytes.len() as u64).wrapping_mul(8).to_le_bytes());
    let mut state = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    for block in padded.chunks_exact(64) {
        let words: [u32; 16] = std::array::from_fn(|index| {
            let word = &block[index * 4..index * 4 + 4];
            u32::from_le_bytes(word.try_into().expect("four bytes"))
        });
        let changed = rounds(state, &words);
        state = std::array::from_fn(|index| u32::wrapping_add(state[index], changed[index]));
    }
    let mut digest = [0; 16];
    for (place, word) in digest.chunks_exact_mut(4).zip(state) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    digest
}

fn rounds([mut a, mut b, mut c, mut d]: [u32; 4], words: &[u32; 16]) -> [u32; 4] {
    for step in 0..64 {
        let round = step / 16;
        let (mixed, word) = match round {
            0 => ((b & c) | (!b & d), step),
            1 => ((d & b) | (!d & c), 5 * step + 1),
            2 => (b ^ c ^ d, 3 * step + 5),
            _ => (c ^ (b | !d), 7 * step),
        };
        let sum = a.wrapping_add(mixed).wrapping_add(SINES[step]).wrapping_add(words[word % 16]);
        let turned = sum.rotate_left(ROTATIONS[round][step % 4]);
        (a, d, c, b) = (d, c, b, b.wrapping_add(turned));
    }
    [a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, guid: &str) {
        let found = Guid::of(text);
        assert_eq!(found.to_string(), guid, "{text}");
        assert_eq!(guid.parse(), Ok(found));
    }

    /// The test suite of RFC 1321, and lengths around the end of a block.
    #[test]
    fn digests_are_as_the_standard_has_them() {
        check("", "d41d8cd9-8f00-b204-e980-0998ecf8427e");
        check("a", "0cc175b9-c0f1-b6a8-31c3-99e269772661");
        check("message digest", "f96b697d-7cb7-938d-525a-2f31aaf161d0");
        check("abcdefghijklmnopqrstuvwxyz", "c3fcd3d7-6192-e400-7dfb-496cca67e13b");
        check(&"1234567890".repeat(8), "57edf4a2-2be3-c955-ac49-da2e2107b67a");
        check(&"x".repeat(55), "04364420-e25c-512f-d958-a70738aa8f72");
        check(&"x".repeat(56), "668a72d5-ba17-f08e-62da-bcafad6db14b");
        check(&"x".repeat(64), "c1bb4f81-d892-b2d5-7947-682aeb252456");
    }

    #[test]
    fn only_guids_are_read() {
        for text in [
            "",
            "1",
            "d41d8cd98f00b204e9800998ecf8427e",
            "d41d8cd9-8f00-b204-e980-0998ecf8427g",
            "+41d8cd9-8f00-b204-e980-0998ecf8427e",
        ] {
            assert_eq!(text.parse::<Guid>(), Err(GuidError), "{text}");
        }
        assert_eq!("D41D8CD9-8F00-B204-E980-0998ECF8427E".parse(), Ok(Guid::of("")));
    }
}
