package config

import (
	"fmt"
	"maps"
	"math"
	"os"
	"reflect"
	"slices"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/lib/option"
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

// entryOptions returns the keys of a [[storage_class]] entry of any kind, except for classCurves.
func (r *resolver) entryOptions() []option.Option {
	var names []string
	var own []option.Option
	for _, k := range r.input.Classes {
		names = append(names, k.Name)
		for _, o := range k.Options {
			i := slices.IndexFunc(own, func(one option.Option) bool { return one.Key == o.Key })
			switch {
			case o.Shared:
			case i < 0:
				own = append(own, o.Option)
			case own[i].Required: // kinds that do not require it say what is allowed
				own[i] = o.Option
			}
		}
	}
	for i := range own {
		if requiring := r.kindsText(own[i].Key, true); !own[i].Required && requiring != "" {
			own[i].Derived += "; required for " + requiring
		}
	}
	return slices.Concat(
		[]option.Option{{
			Key: "kind", Kind: option.Enum, Values: names, Required: true, Help: "Kind of the class",
		}},
		own,
		[]option.Option{{
			Key: "threads", Kind: option.Int, Min: 1, Max: 1024, Default: option.Auto,
			Derived: "cache_threads", Help: "Samples written to it at the same time",
		}},
	)
}

// classCurves are the keys of a [[storage_class]] entry that are throughputs.
var classCurves = []string{"read", "write"}

// kindsText lists the kinds that have an option, or that require it, as a user writes them: kind =
// "file".
func (r *resolver) kindsText(key string, required bool) string {
	var names []string
	for _, k := range r.input.Classes {
		if slices.ContainsFunc(k.Options, func(o store.Option) bool {
			return o.Key == key && (o.Required || !required)
		}) {
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
		Kind: k.Name, Memory: k.Memory, Options: option.Values{}, Threads: r.config.CacheThreads,
	}
	for _, o := range k.Options {
		if o.Job == "" {
			continue
		}
		class.Options[o.Key] = r.config.Value(o.Job)
		asked = asked || o.Required && isSet(class.Options, o.Key)
	}
	setDefaults(class.Options, k)
	return class, asked
}

func (r *resolver) readClass(key string, table map[string]any) fileClass {
	class := fileClass{key: key}
	class.Options = option.Values{}
	var names []string
	for _, o := range r.entryOptions() {
		names = append(names, o.Key)
		given, ok := table[o.Key]
		if !ok {
			if o.Key == "kind" {
				r.problem(Problem{
					Key:     key + ".kind",
					Source:  r.file,
					Wrong:   "missing",
					Allowed: o.Allowed(),
				})
			}
			continue
		}
		value, text, err := o.Read(given)
		r.config.Origins[key+"."+o.Key] = Origin{Value: text, Source: r.file}
		if err != nil {
			r.refuse(key+"."+o.Key, err, r.file)
		}
		if value != nil {
			class.Options[o.Key] = value
		}
	}
	class.Kind = option.Get[string](class.Options, "kind")
	class.Threads = option.Get[int](class.Options, "threads")
	delete(class.Options, "kind")
	delete(class.Options, "threads")
	curves := map[string]*map[int]float64{"read": &class.Read, "write": &class.Write}
	for _, name := range classCurves {
		names = append(names, name)
		if value, given := table[name]; given {
			*curves[name] = r.readCurve(key+"."+name, value, "samples at the same time")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(table)) {
		if !slices.Contains(names, name) {
			r.refuse(key+"."+name, option.Unknown(name, table[name], names), r.file)
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
		k, _ := r.kind(class.Kind)
		class.Memory = k.Memory
		for _, o := range k.Options {
			if o.Shared {
				class.Options[o.Key] = r.config.Value(o.Job)
			}
		}
		setDefaults(class.Options, k)
		r.config.StorageClasses = append(r.config.StorageClasses, class.StorageClass)
	}
}

// setDefaults gives a class's options that are missing their defaults, if these are values.
func setDefaults(values option.Values, k store.Kind) {
	for _, o := range k.Options {
		if _, given := values[o.Key]; given || o.Default == "" || o.IsAuto(o.Default) {
			continue
		}
		if value, _, err := o.Read(o.Default); err == nil {
			values[o.Key] = value
		}
	}
}

// classKeys returns the job's keys that describe a class, and are of no effect beside entries.
func (r *resolver) classKeys() (keys []string) {
	for _, k := range r.input.Classes {
		for _, o := range k.Options {
			if o.Job != "" && !o.Shared {
				keys = append(keys, o.Job)
			}
		}
	}
	return keys
}

// checkClasses checks each class, and that all of them together fit the machine.
func (r *resolver) checkClasses() {
	var memory int64
	var paths []string
	var seen []os.FileInfo // nil: such a directory does not exist yet
	for i, class := range r.config.StorageClasses {
		kind, known := r.kind(class.Kind)
		if !known || !r.checkOptions(i, class, kind) {
			continue
		}
		capacity := r.optionProblem(i, kind, store.CapacityKey)
		if kind.Memory {
			memory = addSizes(memory, class.Capacity())
			r.checkMemory(capacity, memory)
		}
		if dir := class.Path(); kind.Has(store.PathKey) {
			path := r.optionProblem(i, kind, store.PathKey)
			there := r.checkDirectory(path, capacity, class, kind)
			if slices.Contains(paths, dir) ||
				slices.ContainsFunc(seen, func(o os.FileInfo) bool { return os.SameFile(o, there) }) {
				path.Wrong, path.Remedy = "already the directory of another class",
					"give each class a directory of its own"
				r.problem(path)
			}
			paths, seen = append(paths, dir), append(seen, there)
		}
	}
}

// checkOptions checks that class i has what its kind requires, and nothing that its kind does not
// have. It reports whether it has what is required.
func (r *resolver) checkOptions(i int, class StorageClass, kind store.Kind) bool {
	complete := true
	for _, o := range kind.Options {
		if !o.Required || isSet(class.Options, o.Key) {
			continue
		}
		p := r.optionProblem(i, kind, o.Key)
		if p.Value != "" && p.Value != option.Auto {
			complete = false // it is wrong, which was reported
			continue
		}
		p.Wrong, p.Allowed = "missing", o.Allowed()
		if union, _ := option.Find(r.entryOptions(), o.Key); !union.Required {
			p.Wrong = fmt.Sprintf("a %s class needs a %s", kind.Name, o.Key)
		}
		r.problem(p)
		complete = false
	}
	for _, key := range slices.Sorted(maps.Keys(class.Options)) {
		if !kind.Has(key) && isSet(class.Options, key) {
			p := r.optionProblem(i, kind, key)
			p.Wrong = fmt.Sprintf("a %s class has no %s", kind.Name, key)
			p.Remedy = "remove it, or set " + r.kindsText(key, false)
			r.problem(p)
		}
	}
	return complete
}

// isSet reports whether a value is there, and is not empty or 0.
func isSet(values option.Values, key string) bool {
	value, ok := values[key]
	return ok && !reflect.ValueOf(value).IsZero()
}

// optionProblem returns a problem with key, value and origin of an option of class i, as the user
// wrote them, to be completed by the caller.
func (r *resolver) optionProblem(i int, kind store.Kind, key string) (p Problem) {
	for _, o := range kind.Options {
		if o.Key == key {
			p.Key = o.Job
		}
	}
	if r.classes != nil {
		p.Key = r.classes[i].key + "." + key
	}
	origin, ok := r.config.Origins[p.Key]
	if !ok {
		origin.Source = r.file
	}
	p.Value, p.Source = origin.Value, origin.Source
	return p
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

// checkDisk rejects a capacity that exceeds the space on the disk of the directory found, and
// records what an automatic one would be now.
func (r *resolver) checkDisk(capacity Problem, class StorageClass, found directory) {
	if class.Capacity() > 0 {
		reserve := class.Reserve()
		if reserve == 0 {
			reserve = found.reserve
		}
		if limit := max(found.free-reserve, 0); class.Capacity() > limit {
			what := fmt.Sprintf("the disk of %s, on which %s stay free (disk_reserve)", class.Path(),
				human.Format(reserve))
			r.problem(tooLarge(capacity, what, class.Capacity(), limit))
		}
		return
	}
	r.config.Origins[capacity.Key] = Origin{
		Value: option.Auto,
		Source: fmt.Sprintf("measured: %s available to it in %s, less disk_reserve",
			human.Format(found.free), class.Path()),
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
