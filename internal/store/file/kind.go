package file

import (
	"github.com/hdmlp/hdmlp/internal/lib/option"
	"github.com/hdmlp/hdmlp/internal/store"
)

// Name is the name of the kind.
const Name = "file"

// options are what a class is configured by.
func options() []store.Option {
	return []store.Option{
		{
			Option: option.Option{
				Key: store.PathKey, Kind: option.Path, Required: true,
				Help: "Directory of the class",
				Job:  "cache_dir",
			},
			Example: "/nvme/hdmlp-" + Name,
		},
		{
			Option: option.Option{
				Key: store.ReserveKey, Kind: option.Size, Min: 1, Default: option.Auto,
				Derived: "5 % of the disk, at least 1 GiB",
				Help:    "Bytes to leave free on the directory's disk",
				Job:     "disk_reserve",
			},
			Shared: true,
		},
		{
			Option: option.Option{
				Key: store.CapacityKey, Kind: option.Size, Min: 1, Default: option.Auto,
				Derived: "the free space of the disk, less disk_reserve",
				Help:    "Bytes that samples may occupy",
				Job:     "cache_size",
			},
			Example: "500GB",
		},
	}
}

// Kind describes the class to the configuration. version is hdmlp's version, for the descriptions
// of stores.
func Kind(version string) store.Kind {
	return store.Kind{
		Name:    Name,
		Help:    "a directory on a fast local disk, whose samples later jobs reuse",
		Options: options(),
		Held:    Held,
		Reserve: reserve,
		Check:   Check,
		New: func(o store.Options) (store.Class, error) {
			own := OptionsOf(o)
			own.Version = version
			class, err := New(own)
			if err != nil {
				return nil, err // not a nil *Class
			}
			return class, nil
		},
	}
}

// reserve returns how many bytes of a disk of that size are left free by default.
func reserve(total int64) int64 { return max(1<<30, total/20) }

// OptionsOf returns the options of a class as the configuration has them.
func OptionsOf(o store.Options) Options {
	return Options{
		Dir:      option.Get[string](o.Values, store.PathKey),
		Capacity: option.Get[int64](o.Values, store.CapacityKey),
		Reserve:  option.Get[int64](o.Values, store.ReserveKey),
		Warn:     o.Warn,
	}
}
