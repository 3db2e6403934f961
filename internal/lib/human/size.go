package human

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"strings"
)

// Allowed describes what Parse accepts, for messages.
const Allowed = `a size such as "10GB" (10^9 bytes), "64MiB" (2^20) or 1048576`

// ErrRange is the error for a size that does not fit into an int64.
var ErrRange = errors.New("more than the largest size")

// ErrFraction is the error for a small number without a unit that is not whole: it is not a number
// of bytes, and the unit may have been forgotten.
var ErrFraction = errors.New("not a whole number of bytes")

// computed is from which number of bytes on a fraction is taken as the result of a computation,
// such as a third of the memory, and not as a number whose unit was forgotten.
var computed = big.NewRat(1_000_000, 1)

var units = map[string]int64{
	"": 1, "b": 1,
	"kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12, "pb": 1e15,
	"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40, "pib": 1 << 50,
}

// Parse parses a size: a decimal number and a unit from B to PB (powers of 1000) or from KiB to PiB
// (powers of 1024), in upper or lower case. Fractions of a byte are truncated; without a unit, a
// number below 10^6 must be whole.
func Parse(text string) (int64, error) {
	text = strings.TrimSpace(text)
	digits := strings.TrimRight(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ \t")
	factor, known := units[strings.ToLower(strings.TrimSpace(text[len(digits):]))]
	if !known || digits == "" || len(digits) > 40 || strings.Trim(digits, "0123456789.") != "" {
		return 0, fmt.Errorf("%q is not a size", text)
	}
	value, ok := new(big.Rat).SetString(digits)
	if !ok {
		return 0, fmt.Errorf("%q is not a size", text)
	}
	if digits == text && !value.IsInt() && value.Cmp(computed) < 0 {
		return 0, fmt.Errorf("%q is %w: add a unit, as in %q", text, ErrFraction, text+"GB")
	}
	value.Mul(value, new(big.Rat).SetInt64(factor))
	bytes := new(big.Int).Quo(value.Num(), value.Denom())
	if !bytes.IsInt64() {
		return 0, fmt.Errorf("%q is %w of %d bytes", text, ErrRange, int64(math.MaxInt64))
	}
	return bytes.Int64(), nil
}

// Format formats a byte count for people: "512 bytes", "23.1 GiB".
func Format(n int64) string {
	if n > -1024 && n < 1024 {
		return fmt.Sprintf("%d bytes", n)
	}
	value := float64(n) / 1024
	names := []string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	for len(names) > 1 && math.Abs(value) >= 1023.95 {
		value /= 1024
		names = names[1:]
	}
	return fmt.Sprintf("%.1f %s", value, names[0])
}
