package config

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/model/envfile"
	"github.com/hdmlp/hdmlp/internal/store"
)

// fileClass is one [[storage_class]] entry, complete except for values that are Auto.
type fileClass struct {
	StorageClass
	key string // "storage_class[0]"
}

// readClasses reads the [[storage_class]] entries.
func (r *resolver) readClasses(value any) {
	entries, ok := value.([]any)
	if !ok {
		r.problem(Problem{
			Key: keyStorageClass, Value: envfile.Text(value), Source: r.file,
			Wrong: "not a list of tables", Remedy: "begin each class with the line [[storage_class]]",
		})
		return
	}
	for i, entry := range entries {
		key := fmt.Sprintf("%s[%d]", keyStorageClass, i)
		table, ok := entry.(map[string]any)
		if !ok {
			r.problem(Problem{
				Key: key, Value: envfile.Text(entry), Source: r.file,
				Wrong: "not a table", Remedy: "begin each class with the line [[storage_class]]",
			})
			continue
		}
		r.classes = append(r.classes, r.readClass(key, table))
	}
}

// classParameters returns the keys of a [[storage_class]] entry.
func (r *resolver) classParameters() []Parameter {
	var names []string
	for _, k := range r.input.Classes {
		names = append(names, k.Name)
	}
	return []Parameter{
		{Key: "kind", Kind: Enum, Values: names, Help: "Kind of the class"},
		{
			Key: "capacity", Kind: Size, Min: 1, Default: Auto,
			Derived: "the free space of the disk, less disk_reserve; required for " +
				r.kindsText(false),
			Help: "Bytes that samples may occupy",
		},
		{
			Key: "path", Kind: Path,
			Help: "Directory of the class, only for " + r.kindsText(true),
		},
		{
			Key: "threads", Kind: Int, Min: 1, Max: 1024, Default: Auto, Derived: "cache_threads",
			Help: "Samples written to it at the same time",
		},
	}
}

// classCurves are the keys of a [[storage_class]] entry that are throughputs.
var classCurves = []string{"read", "write"}

// kindsText lists the kinds with a directory, or those without, as a user writes them: kind =
// "file".
func (r *resolver) kindsText(directory bool) string {
	var names []string
	for _, k := range r.input.Classes {
		if k.Directory == directory {
			names = append(names, fmt.Sprintf("kind = %q", k.Name))
		}
	}
	return human.List(names)
}

// kind returns the kind of this name. It is not found if the name was wrong, which has been
// reported.
func (r *resolver) kind(name string) (store.Kind, bool) {
	i := slices.IndexFunc(r.input.Classes, func(k store.Kind) bool { return k.Name == name })
	if i < 0 {
		return store.Kind{}, false
	}
	return r.input.Classes[i], true
}

// askedByKeys returns the class of this kind that the job's keys describe; asked is false if they
// describe none.
func (r *resolver) askedByKeys(k store.Kind) (class StorageClass, asked bool) {
	class = StorageClass{
		Kind:     k.Name,
		Capacity: field[int64](r.config, k.SizeKey),
		Threads:  r.config.CacheThreads,
	}
	if k.Directory {
		class.Path, class.Reserve = field[string](r.config, k.PathKey), r.config.DiskReserve
		return class, class.Path != ""
	}
	return class, class.Capacity > 0
}

// field returns the value of a key that a kind names; zero for "".
func field[T any](c *Config, key string) (value T) {
	if key == "" {
		return value
	}
	p, ok := Lookup(key)
	if !ok {
		panic("config: a kind of storage class names the unknown key " + key)
	}
	return *p.field(c).(*T)
}

func (r *resolver) readClass(key string, table map[string]any) fileClass {
	class := fileClass{key: key}
	fields := map[string]any{
		"kind": &class.Kind, "capacity": &class.Capacity, "path": &class.Path,
		"threads": &class.Threads,
	}
	var names []string
	for _, p := range r.classParameters() {
		names = append(names, p.Key)
		value, ok := table[p.Key]
		if !ok {
			if p.Key == "kind" {
				r.problem(Problem{
					Key:     key + ".kind",
					Source:  r.file,
					Wrong:   "missing",
					Allowed: p.Allowed(),
				})
			}
			continue
		}
		text, scalar := toText(value)
		r.config.Origins[key+"."+p.Key] = Origin{Value: text, Source: r.file}
		if p.Default == Auto && text == Auto {
			continue
		}
		err := errors.New("not a single value")
		if scalar {
			err = p.parse(text, fields[p.Key])
		}
		if err != nil {
			r.problem(Problem{
				Key: key + "." + p.Key, Value: text, Source: r.file,
				Wrong: err.Error(), Allowed: p.Allowed(), Err: err,
			})
		}
	}
	curves := map[string]*map[int]float64{"read": &class.Read, "write": &class.Write}
	for _, name := range classCurves {
		names = append(names, name)
		if value, given := table[name]; given {
			*curves[name] = r.readCurve(key+"."+name, value, "samples at the same time")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(table)) {
		if !slices.Contains(names, name) {
			text, _ := toText(table[name])
			r.problem(Problem{
				Key: key + "." + name, Value: text, Source: r.file,
				Wrong: "unknown key" + human.Nearest(name, names), Allowed: human.List(names),
			})
		}
	}
	return class
}

// takeClasses sets StorageClasses from the file's entries, which replace the keys that describe
// classes.
func (r *resolver) takeClasses() {
	for _, key := range r.classKeys() {
		if g, ok := r.given[key]; ok {
			r.problem(Problem{
				Key: key, Value: g.text, Source: g.source,
				Wrong: fmt.Sprintf("conflicts with the [[storage_class]] entries of %s, "+
					"which replace it", r.file),
				Remedy: "remove either the key or the entries",
			})
		}
		r.config.Origins[key] = Origin{
			Value:  "",
			Source: r.file + ": [[storage_class]] replaces it",
		}
	}
	r.config.Entries = r.file
	for _, class := range r.classes {
		if class.Threads == 0 {
			class.Threads = r.config.CacheThreads
		}
		if k, _ := r.kind(class.Kind); k.Directory {
			class.Reserve = r.config.DiskReserve
		}
		r.config.StorageClasses = append(r.config.StorageClasses, class.StorageClass)
	}
}

// classKeys returns the job's keys that describe a class.
func (r *resolver) classKeys() (keys []string) {
	for _, k := range r.input.Classes {
		for _, key := range []string{k.PathKey, k.SizeKey} {
			if key != "" {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

// checkClasses checks each class, and that all of them together fit the machine.
func (r *resolver) checkClasses() {
	var memory int64
	var paths []string
	for i, class := range r.config.StorageClasses {
		kind, known := r.kind(class.Kind)
		if !known {
			continue
		}
		capacity, path := r.classProblems(i, kind)
		if kind.Directory {
			switch {
			case class.Path == "":
				path.Wrong, path.Allowed = "missing", "an absolute path"
				r.problem(path)
				continue
			case slices.Contains(paths, class.Path):
				path.Wrong, path.Remedy = "already the directory of another class",
					"give each class a directory of its own"
				r.problem(path)
			}
			paths = append(paths, class.Path)
			r.checkDirectory(path, capacity, class, kind)
			continue
		}
		memory = addSizes(memory, class.Capacity)
		if _, given := r.config.Origins[capacity.Key]; class.Capacity == 0 &&
			(!given || capacity.Value == Auto) {
			capacity.Wrong, capacity.Allowed = fmt.Sprintf("a %s class needs a capacity",
				kind.Name), human.Allowed
			r.problem(capacity)
		}
		if class.Path != "" {
			path.Wrong, path.Remedy = "a "+kind.Name+" class has no path",
				"remove it, or set "+r.kindsText(true)
			r.problem(path)
		}
		r.checkMemory(capacity, memory)
	}
}

// classProblems returns problems with key, value and origin of class i's capacity and path, as the
// user wrote them, to be completed by the caller.
func (r *resolver) classProblems(i int, kind store.Kind) (capacity, path Problem) {
	capacity.Key, path.Key = kind.SizeKey, kind.PathKey
	if r.classes != nil {
		capacity.Key, path.Key = r.classes[i].key+".capacity", r.classes[i].key+".path"
	}
	for _, p := range []*Problem{&capacity, &path} {
		origin, ok := r.config.Origins[p.Key]
		if !ok {
			origin.Source = r.file
		}
		p.Value, p.Source = origin.Value, origin.Source
	}
	return capacity, path
}

// checkMemory rejects a capacity with which all memory classes together, which take need bytes,
// exceed the available memory.
func (r *resolver) checkMemory(capacity Problem, need int64) {
	available := r.input.Machine.AvailableMemory
	if available == nil || need == 0 {
		return
	}
	limit, err := available()
	if err != nil {
		capacity.Wrong, capacity.Err = "cannot measure the available memory: "+err.Error(), err
		r.problem(capacity)
		return
	}
	if need > limit {
		r.problem(tooLarge(capacity, "memory", need, limit))
	}
}

// checkDisk rejects a capacity that exceeds the space on the disk, limit, and records what an
// automatic one would be now.
func (r *resolver) checkDisk(capacity Problem, class StorageClass, limit int64) {
	if class.Capacity > 0 {
		if need := addSizes(class.Capacity, class.Reserve); need > limit {
			what := "the disk of " + class.Path
			if class.Reserve > 0 {
				what += ", disk_reserve included"
			}
			r.problem(tooLarge(capacity, what, need, limit))
		}
		return
	}
	r.config.Origins[capacity.Key] = Origin{
		Value: Auto,
		Source: fmt.Sprintf("measured: %s available to it in %s, less disk_reserve",
			human.Format(limit), class.Path),
	}
}

// addSizes returns a+b, or the largest int64 if that overflows: both come from users.
func addSizes(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

func tooLarge(p Problem, what string, need, limit int64) Problem {
	p.Wrong = fmt.Sprintf("too large for %s: %s needed, %s available", what, human.Format(need),
		human.Format(limit))
	p.Allowed = "a size up to " + human.Format(limit)
	p.Err = &LimitError{What: what, Need: need, Limit: limit}
	return p
}

// LimitError is the cause of a Problem with a capacity that exceeds what the machine has.
type LimitError struct {
	What  string // "memory", "the disk of /nvme"
	Need  int64  // bytes
	Limit int64  // bytes
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("%s: %s needed, %s available", e.What, human.Format(e.Need),
		human.Format(e.Limit))
}
