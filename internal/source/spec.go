package source

import "github.com/hdmlp/hdmlp/internal/lib/option"

// Spec is a dataset as a user specifies it.
type Spec struct {
	Kind    string        // as Kind.Name has it
	Path    string        // absolute
	Options option.Values // of the kind
}
