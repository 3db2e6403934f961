//go:build invariants

package invariants

// Enabled reports whether this build has the invariants tag, and so the expensive checks.
const Enabled = true
