package file

import "github.com/hdmlp/hdmlp/internal/store"

// Name is the name of the kind.
const Name = "file"

// Kind describes the class to the configuration. version is hdmlp's version, for the descriptions
// of stores.
func Kind(version string) store.Kind {
	return store.Kind{
		Name:      Name,
		Help:      "a directory on a fast local disk, whose samples later jobs reuse",
		Directory: true,
		SizeKey:   "cache_size",
		PathKey:   "cache_dir",
		Held:      Held,
		Check:     Check,
		New: func(o store.Options) (store.Class, error) {
			class, err := New(Options{
				Dir:      o.Dir,
				Capacity: o.Capacity,
				Reserve:  o.Reserve,
				Warn:     o.Warn,
				Version:  version,
			})
			if err != nil {
				return nil, err // not a nil *Class
			}
			return class, nil
		},
	}
}
