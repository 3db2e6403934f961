package dataset

// Spec names a dataset, as a user does.
type Spec struct {
	Kind       string   // "folder"
	Path       string   // absolute
	Extensions []string // nil: torchvision's
}
