package source

// Spec is a dataset as a user specifies it.
type Spec struct {
	Kind       string   // "folder"
	Path       string   // absolute
	Extensions []string // nil: torchvision's
}
