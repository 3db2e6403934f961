package config

import (
	"fmt"
	"math"
	"slices"

	"github.com/hdmlp/hdmlp/internal/config/size"
)

// derive measures what Auto stands for, where it is not left to others (the
// field is zero then), and makes StorageClasses.
func (r *resolver) derive() {
	c := r.config
	if r.isAuto("decode_memory") {
		r.deriveDecodeMemory()
	}
	if r.classes != nil {
		r.takeClasses()
		return
	}
	if r.isAuto("memory") {
		r.deriveMemory()
	}
	if c.Memory > 0 {
		c.StorageClasses = append(c.StorageClasses, StorageClass{
			Kind: "memory", Capacity: c.Memory, Threads: c.CacheThreads,
		})
	}
	if c.CacheDir != "" {
		c.StorageClasses = append(c.StorageClasses, StorageClass{
			Kind: "file", Capacity: c.CacheSize, Path: c.CacheDir, Threads: c.CacheThreads, Reserve: c.DiskReserve,
		})
	}
}

func (r *resolver) isAuto(key string) bool {
	return r.config.Origins[key].Value == Auto
}

func (r *resolver) deriveMemory() {
	available := r.input.Machine.AvailableMemory
	if available == nil {
		r.config.Origins["memory"] = Origin{Value: "0", Source: "default: how much is available is not known"}
		return
	}
	n, err := available()
	if err != nil {
		p, _ := Lookup("memory")
		r.problem(Problem{
			Key: "memory", Value: Auto, Source: "default",
			Wrong: "measure the memory that is available: " + err.Error(), Allowed: p.Allowed(), Err: err,
		})
		return
	}
	r.config.Memory = max(n/2, 0)
	r.config.Origins["memory"] = Origin{
		Value:  size.Format(r.config.Memory),
		Source: fmt.Sprintf("measured: half of %s available", size.Format(n)),
	}
}

// LeastDecodeMemory is the smallest decode_memory that is derived: an image of 10 million pixels fits, on as many threads as pay off.
const LeastDecodeMemory = 64 << 20

// deriveDecodeMemory leaves room for memory, which by default is half of what is available, and for the rest.
func (r *resolver) deriveDecodeMemory() {
	const most, perProcessor, unknown = 4 << 30, 256 << 20, 1 << 30
	m := r.input.Machine
	n, source := int64(unknown), "default: how much is available is not known"
	if m.AvailableMemory != nil {
		if available, err := m.AvailableMemory(); err == nil { // deriveMemory or checkMemory says so
			n, source = available/8, fmt.Sprintf("measured: an eighth of %s available", size.Format(available))
		}
	}
	r.config.DecodeMemory = max(min(n, max(most, int64(m.Processors)*perProcessor)), LeastDecodeMemory)
	r.config.Origins["decode_memory"] = Origin{Value: size.Format(r.config.DecodeMemory), Source: source}
}

// takeClasses makes StorageClasses of the file's entries, which replace the keys
// memory, cache_dir and cache_size.
func (r *resolver) takeClasses() {
	for _, key := range []string{"memory", "cache_dir", "cache_size"} {
		if g, ok := r.given[key]; ok {
			r.problem(Problem{
				Key: key, Value: g.text, Source: g.source,
				Wrong:   fmt.Sprintf("%s has [[storage_class]] entries, which replace it", r.file),
				Allowed: "one of the two",
			})
		}
		r.config.Origins[key] = Origin{Value: "", Source: r.file + ": [[storage_class]] replaces it"}
	}
	for _, class := range r.classes {
		if class.Threads == 0 {
			class.Threads = r.config.CacheThreads
		}
		if class.Kind == "file" {
			class.Reserve = r.config.DiskReserve
		}
		r.config.StorageClasses = append(r.config.StorageClasses, class.StorageClass)
	}
}

// validate checks what concerns several keys, or the machine.
func (r *resolver) validate() {
	r.checkTLS()
	var memory int64
	paths := []string{}
	for i, class := range r.config.StorageClasses {
		capacity, path := r.classKeys(i)
		switch class.Kind {
		case "memory":
			memory = addSizes(memory, class.Capacity)
			if _, given := r.config.Origins[capacity.Key]; class.Capacity == 0 && (!given || capacity.Value == Auto) {
				capacity.Wrong, capacity.Allowed = "a memory class needs a capacity", size.Allowed
				r.problem(capacity)
			}
			if class.Path != "" {
				path.Wrong, path.Allowed = "memory has no path", `only with kind = "file"`
				r.problem(path)
			}
			r.checkMemory(capacity, memory)
		case "file":
			switch {
			case class.Path == "":
				path.Wrong, path.Allowed = "missing", "an absolute path"
				r.problem(path)
				continue
			case slices.Contains(paths, class.Path):
				path.Wrong, path.Allowed = "the directory of another class", "a directory for each class"
				r.problem(path)
			}
			paths = append(paths, class.Path)
			r.checkDisk(capacity, class)
		}
	}
}

// checkTLS refuses some of tls's files without the others, and files that nobody would look at.
func (r *resolver) checkTLS() {
	c := r.config
	files := []struct{ key, path string }{{"tls_cert", c.TLSCert}, {"tls_key", c.TLSKey}, {"tls_ca", c.TLSCA}}
	given := slices.DeleteFunc(slices.Clone(files), func(f struct{ key, path string }) bool { return f.path == "" })
	if len(given) == 0 {
		return
	}
	for _, f := range files {
		p, _ := Lookup(f.key)
		problem := Problem{Key: f.key, Value: f.path, Source: r.config.Origins[f.key].Source, Allowed: p.Allowed()}
		switch {
		case f.path == "":
			problem.Wrong = "missing: " + given[0].key + " is given, and the three belong together"
		case !c.TLS:
			problem.Wrong, problem.Allowed = "of no use while tls is off", "tls = on"
		default:
			continue
		}
		r.problem(problem)
	}
}

// classKeys gives the problems that class i's capacity and path would be, in
// the user's words.
func (r *resolver) classKeys(i int) (capacity, path Problem) {
	capacity.Key, path.Key = "cache_size", "cache_dir"
	if r.classes != nil {
		capacity.Key, path.Key = r.classes[i].key+".capacity", r.classes[i].key+".path"
	} else if r.config.StorageClasses[i].Kind == "memory" {
		capacity.Key = "memory"
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

// checkMemory refuses a capacity with which all memory classes together, need
// bytes, are larger than the memory.
func (r *resolver) checkMemory(capacity Problem, need int64) {
	available := r.input.Machine.AvailableMemory
	if available == nil || need == 0 {
		return
	}
	limit, err := available()
	if err != nil {
		capacity.Wrong, capacity.Err = "measure the memory that is available: "+err.Error(), err
		r.problem(capacity)
		return
	}
	if need > limit {
		r.problem(tooLarge(capacity, "memory", need, limit))
	}
}

// checkDisk refuses a capacity that is larger than the disk, and says what an
// automatic one would be now.
func (r *resolver) checkDisk(capacity Problem, class StorageClass) {
	free := r.input.Machine.FreeDisk
	if free == nil {
		return
	}
	limit, err := free(class.Path)
	if err != nil {
		capacity.Wrong, capacity.Err = err.Error(), err
		r.problem(capacity)
		return
	}
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
		Value:  Auto,
		Source: fmt.Sprintf("measured: %s for it in %s, less disk_reserve", size.Format(limit), class.Path),
	}
}

// addSizes is a+b, at most the largest number there is: both come from users.
func addSizes(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

func tooLarge(p Problem, what string, need, limit int64) Problem {
	p.Wrong = fmt.Sprintf("too large for %s: %s needed, %s available", what, size.Format(need), size.Format(limit))
	p.Allowed = "a size up to " + size.Format(limit)
	p.Err = &LimitError{What: what, Need: need, Limit: limit}
	return p
}

// LimitError is the cause of a Problem with a capacity that the machine has not got.
type LimitError struct {
	What  string // "memory", "the disk of /nvme"
	Need  int64  // bytes
	Limit int64  // bytes
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("%s: %s needed, %s available", e.What, size.Format(e.Need), size.Format(e.Limit))
}
