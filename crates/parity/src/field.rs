//! GF(2^8) modulo 0x11d: the arithmetic of a few coefficients. All tables are made at compile time.

/// `a · 2`.
const fn double(a: u8) -> u8 {
    (a << 1) ^ (if a & 0x80 != 0 { 0x1d } else { 0 })
}

/// `2^k` for `k` in 0..255; the powers repeat from there on.
const POWERS_OF_TWO: [u8; 255] = {
    let mut powers = [1; 255];
    let mut k = 1;
    while k < 255 {
        powers[k] = double(powers[k - 1]);
        k += 1;
    }
    powers
};

/// `2^exponent`.
pub(crate) fn power_of_two(exponent: usize) -> u8 {
    POWERS_OF_TWO[exponent % 255]
}

/// `a · b`.
pub(crate) const fn multiply(a: u8, b: u8) -> u8 {
    let mut product = 0;
    let mut power = a;
    let mut rest = b;
    while rest != 0 {
        if rest & 1 != 0 {
            product ^= power;
        }
        power = double(power);
        rest >>= 1;
    }
    product
}

/// `1 / a`; the inverse of 0 is 0.
pub(crate) fn inverse(a: u8) -> u8 {
    POWERS_OF_TWO.iter().position(|&power| power == a).map_or(0, |exponent| power_of_two(255 - exponent))
}

/// The inverse of the upper left `n` by `n` part of `matrix`, or `None` if it has none.
pub(crate) fn invert(mut matrix: [[u8; 3]; 3], n: usize) -> Option<[[u8; 3]; 3]> {
    let mut result = [[1, 0, 0], [0, 1, 0], [0, 0, 1]];
    for column in 0..n {
        let pivot = (column..n).find(|&row| matrix[row][column] != 0)?;
        matrix.swap(column, pivot);
        result.swap(column, pivot);
        let scale = inverse(matrix[column][column]);
        for k in 0..n {
            matrix[column][k] = multiply(matrix[column][k], scale);
            result[column][k] = multiply(result[column][k], scale);
        }
        for row in 0..n {
            let factor = matrix[row][column];
            if row == column || factor == 0 {
                continue;
            }
            for k in 0..n {
                matrix[row][k] ^= multiply(matrix[column][k], factor);
                result[row][k] ^= multiply(result[column][k], factor);
            }
        }
    }
    Some(result)
}

/// The products of one coefficient with every low and every high nibble: `low[x & 15] ^ high[x >> 4]` is its product
/// with `x`.
#[derive(Clone, Copy)]
pub(crate) struct Nibbles {
    pub low: [u8; 16],
    pub high: [u8; 16],
}

impl Nibbles {
    const fn of(coefficient: u8) -> Self {
        let mut nibbles = Self { low: [0; 16], high: [0; 16] };
        let mut n = 0;
        while n < 16 {
            nibbles.low[n as usize] = multiply(coefficient, n);
            nibbles.high[n as usize] = multiply(coefficient, n << 4);
            n += 1;
        }
        nibbles
    }
}

/// [`Nibbles`] for every coefficient.
pub(crate) static NIBBLES: [Nibbles; 256] = {
    let mut all = [Nibbles { low: [0; 16], high: [0; 16] }; 256];
    let mut coefficient = 0;
    while coefficient < 256 {
        all[coefficient] = Nibbles::of(coefficient as u8);
        coefficient += 1;
    }
    all
};

/// The multiplication by `coefficient` as an 8 by 8 bit matrix in the layout of the instruction GF2P8AFFINEQB: byte
/// `7 - i` of the quadword is the row that makes bit `i` of the product, and bit `j` of a row takes bit `j` of the
/// factor.
pub(crate) const fn affine(coefficient: u8) -> u64 {
    let mut matrix = 0u64;
    let mut j = 0;
    while j < 8 {
        let column = multiply(coefficient, 1 << j);
        let mut i = 0;
        while i < 8 {
            if column >> i & 1 != 0 {
                matrix |= 1 << (8 * (7 - i) + j);
            }
            i += 1;
        }
        j += 1;
    }
    matrix
}

/// [`affine`] for every coefficient.
pub(crate) static AFFINE: [u64; 256] = {
    let mut all = [0; 256];
    let mut coefficient = 0;
    while coefficient < 256 {
        all[coefficient] = affine(coefficient as u8);
        coefficient += 1;
    }
    all
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_generates_the_whole_field() {
        let mut seen = [false; 256];
        for exponent in 0..255 {
            let value = usize::from(power_of_two(exponent));
            assert!(!seen[value], "2^{exponent} was seen before");
            seen[value] = true;
        }
        assert!(!seen[0]);
        assert_eq!(power_of_two(255), 1);
        // The first power that needs the reduction tells the polynomial.
        assert_eq!(power_of_two(8), 0x1d);
    }

    #[test]
    fn every_nonzero_element_has_its_inverse() {
        for a in 1..=255u8 {
            assert_eq!(multiply(a, inverse(a)), 1, "{a}");
        }
    }

    #[test]
    fn nibbles_and_bit_matrices_multiply_like_the_field() {
        for coefficient in 0..=255u8 {
            let nibbles = NIBBLES[usize::from(coefficient)];
            let matrix = AFFINE[usize::from(coefficient)].to_le_bytes();
            for x in 0..=255u8 {
                let expected = multiply(coefficient, x);
                assert_eq!(nibbles.low[usize::from(x & 15)] ^ nibbles.high[usize::from(x >> 4)], expected);
                let bits = (0..8).fold(0, |y, i| y | (((matrix[7 - i] & x).count_ones() as u8 & 1) << i));
                assert_eq!(bits, expected);
            }
        }
    }

    #[test]
    fn an_inverted_matrix_undoes_the_matrix() {
        let matrix = [[1, 1, 1], [2, 8, 32], [4, 64, 116]];
        let inverted = invert(matrix, 3).unwrap();
        let transposed: [[u8; 3]; 3] = std::array::from_fn(|column| matrix.map(|row| row[column]));
        for (row, factors) in inverted.iter().enumerate() {
            for (column, cells) in transposed.iter().enumerate() {
                let cell = factors.iter().zip(cells).fold(0, |sum, (&factor, &cell)| sum ^ multiply(factor, cell));
                assert_eq!(cell, u8::from(row == column));
            }
        }
        assert!(invert([[1, 1, 0], [1, 1, 0], [0, 0, 1]], 3).is_none());
    }
}
