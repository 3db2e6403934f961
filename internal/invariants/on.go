//go:build invariants

package invariants

// Enabled reports whether the binary checks what always holds, at a price that production does not
// pay.
const Enabled = true
