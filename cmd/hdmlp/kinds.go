package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/hdmlp/hdmlp/internal/daemon"
	"github.com/hdmlp/hdmlp/internal/lib/host"
	"github.com/hdmlp/hdmlp/internal/lib/option"
	"github.com/hdmlp/hdmlp/internal/node"
	"github.com/hdmlp/hdmlp/internal/node/budget"
	"github.com/hdmlp/hdmlp/internal/node/catalog"
	"github.com/hdmlp/hdmlp/internal/node/config"
	"github.com/hdmlp/hdmlp/internal/node/groups"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/folder"
	"github.com/hdmlp/hdmlp/internal/source/formats/classes"
	"github.com/hdmlp/hdmlp/internal/source/formats/lmdb"
	"github.com/hdmlp/hdmlp/internal/source/formats/manifest"
	"github.com/hdmlp/hdmlp/internal/source/formats/tar"
	"github.com/hdmlp/hdmlp/internal/source/objects"
	"github.com/hdmlp/hdmlp/internal/source/objects/s3"
	"github.com/hdmlp/hdmlp/internal/source/objects/web"
	"github.com/hdmlp/hdmlp/internal/source/records"
	"github.com/hdmlp/hdmlp/internal/source/retry"
	"github.com/hdmlp/hdmlp/internal/store"
	"github.com/hdmlp/hdmlp/internal/store/file"
	"github.com/hdmlp/hdmlp/internal/store/memory"
	"github.com/hdmlp/hdmlp/internal/store/pressure"
)

// sources returns the kinds of sources, one line each. The first is the default of commands.
func sources() []source.Kind {
	places := places()
	return []source.Kind{
		folder.Kind(records.Kind(classes.Format(), places, availableMemory), availableMemory),
		records.Kind(tar.Format(), places, availableMemory),
		records.Kind(lmdb.Format(), places, availableMemory),
		records.Kind(manifest.Format(), places, availableMemory),
	}
}

// places returns the kinds of places that URLs name, one line each.
func places() []objects.Place {
	return []objects.Place{
		s3.Place(),
		web.Place(),
	}
}

// sourceKind returns the kind of source of this name.
func sourceKind(name string) (source.Kind, error) {
	var names []string
	for _, k := range sources() {
		if k.Name == name {
			return k, nil
		}
		names = append(names, k.Name)
	}
	return source.Kind{}, badInput("dataset kind %q is not known; there are: %s", name,
		strings.Join(names, ", "))
}

// defaultExtensions returns the extensions of a kind's samples by default; nil if names do not
// matter.
func defaultExtensions(k source.Kind) []string {
	o, ok := option.Find(k.Options, source.ExtensionsKey)
	if !ok {
		return nil
	}
	list, _, _ := o.Read(o.Default) // a list of texts is never wrong
	return list.([]string)
}

// pathsOf returns a function from a sample's ID to its path, for messages. Paths are empty if the
// source has none.
func pathsOf(src source.Source) func(id int) string {
	if locator, ok := source.As[source.Locator](src); ok {
		return locator.Path
	}
	return func(int) string { return "" }
}

// storageClasses returns the kinds of storage classes, fastest first, one line each. ram is the
// only class in the daemon's memory.
func storageClasses(ram *memory.Class) []store.Kind {
	return []store.Kind{
		memory.Kind(ram),
		file.Kind(version),
	}
}

// describedClasses returns the kinds of storage classes for commands that only read configurations.
func describedClasses() []store.Kind { return storageClasses(memory.New(memory.Options{})) }

// nodeOptions returns the options of a daemon's node: the available kinds, and the facts about its
// machine.
func nodeOptions(log *slog.Logger, processors int) node.Options {
	memoryBudget := new(budget.Budget)
	ram := memory.New(memory.Options{Limit: func() (int64, error) {
		n, err := availableMemory()
		return n - memoryBudget.Outstanding(), err
	}})
	memoryBudget.Yield = ram.Yield
	kinds := catalog.Kinds{Classes: storageClasses(ram)}
	for _, k := range sources() {
		kinds.Sources = append(kinds.Sources, withRetries(k))
	}
	return node.Options{Kinds: kinds, Groups: groups.New(log), Machine: config.Machine{
		AvailableMemory: func() (int64, error) {
			n, err := availableMemory()
			return max(n+ram.Idle()-ownGrowth, 0), err
		},
		MemoryBound: memoryBound,
		Disk:        disk,
		Directory:   host.Directory,
		Processors:  processors,
	}, Watch: func() (stop func()) {
		return pressure.Start(pressure.Options{
			Cache: ram, Measure: memoryReading(memoryBudget.Outstanding), Log: log,
		}).Close
	}, Shared: node.Shared{Budget: memoryBudget, Version: version, Protocol: daemon.Protocol}}
}

// retriedSource is a source wrapped in retries, with its index.
type retriedSource struct {
	*retry.Source
	index *source.Index
}

func (s retriedSource) Index() *source.Index { return s.index }

// withRetries returns the kind of source, wrapped in retries.
func withRetries(k source.Kind) source.Kind {
	open := k.Open
	k.Open = func(ctx context.Context, path string,
		o source.OpenOptions,
	) (source.Indexed, error) {
		source, err := open(ctx, path, o)
		if err != nil {
			return nil, err
		}
		return retriedSource{retry.New(source, retry.Options{
			Timeout: o.Timeout,
			Slow: func(id int, path string, since time.Time) {
				o.Warn(fmt.Sprintf("the source has not answered for %.0f s: sample %d (%s)",
					time.Since(since).Seconds(), id, path))
			},
		}), source.Index()}, nil
	}
	return k
}

// openError returns the error of a dataset that cannot be opened, whatever its kind: it is wrong
// input, unless the source did not answer or the command was interrupted.
func openError(err error) error {
	var problem *source.Error
	if errors.As(err, &problem) && !errors.Is(err, source.ErrUnavailable) {
		return inputError{err}
	}
	return err
}
