package source

import (
	"encoding/hex"

	"github.com/zeebo/xxh3"

	"github.com/hdmlp/hdmlp/internal/lib/option"
)

// Spec is a dataset as a user specifies it.
type Spec struct {
	Kind     string        // as Kind.Name has it
	Path     string        // absolute
	Options  option.Values // of the kind
	Manifest *Manifest     // of a kind that has one, else nil
}

// Manifest is a list of a dataset's records, as a process gives it. It does not change.
type Manifest struct {
	Data []byte
	sum  string
}

// NewManifest returns the manifest of these bytes, which belong to it from now on.
func NewManifest(data []byte) *Manifest {
	sum := xxh3.Hash128(data).Bytes()
	return &Manifest{Data: data, sum: hex.EncodeToString(sum[:])}
}

// Sum returns a hash of the manifest; "" of none.
func (m *Manifest) Sum() string {
	if m == nil {
		return ""
	}
	return m.sum
}
