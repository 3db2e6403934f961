package config

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/pelletier/go-toml/v2"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/lib/libconfig"
	"github.com/hdmlp/hdmlp/internal/store"
)

// libconfigSuffix is how names of files end that are configured as the thesis's program is, in the
// syntax of libconfig (thesis 4.3.3, listing 4.7).
const libconfigSuffix = ".cfg"

// translation makes the table of a TOML file of the settings of a libconfig file.
type translation struct {
	file     string
	kinds    []store.Kind
	toml     bool // the table becomes a file
	table    map[string]any
	notes    []string // what of the file has no effect, or another one
	problems []Problem
	settings map[string]origin // by the key of the table that they give
}

// origin is where a setting is in the file.
type origin struct {
	key  string
	line int
}

// setting is what is done with a setting of this name.
type setting struct {
	name string
	take func(key string, v libconfig.Value)
}

// translate translates the text of a libconfig file. toml says that it becomes a TOML file.
func translate(file, text string, kinds []store.Kind, toml bool) translation {
	t := translation{
		file: file, kinds: kinds, toml: toml, table: map[string]any{}, settings: map[string]origin{},
	}
	g, err := libconfig.Parse(text)
	if err != nil {
		t.problems = append(t.problems, Problem{
			Source: file, Wrong: "not a libconfig file: " + err.Error(), Err: err,
		})
		return t
	}
	environment := map[string]any{}
	number := func(name string) func(string, libconfig.Value) {
		return func(key string, v libconfig.Value) {
			if n, ok := t.number(key, v); ok {
				environment[name] = n
				t.from(keyEnvironment+"."+name, key, v)
			}
		}
	}
	checkpoint, path := true, ""
	t.group("", libconfig.Value{Line: 1, Any: g}, settings, []setting{
		{"b_c", number("network")},
		{"b_fs", number("source_network")},
		{"distributed_threads", func(key string, v libconfig.Value) {
			if _, ok := t.whole(key, v); ok {
				t.note(v, "%s has no effect: a node serves as many samples at the same time as "+
					"others ask for", key)
			}
		}},
		{"checkpoint", func(key string, v libconfig.Value) { checkpoint = t.boolean(key, v) }},
		{"checkpoint_path", func(key string, v libconfig.Value) {
			path = t.text(key, v)
			t.from("index_dir", key, v)
		}},
		{"storage_classes", t.classes},
		{"pfs_bandwidth", func(key string, v libconfig.Value) {
			if c := t.curve(key, v, "processes", keyEnvironment+".source"); c != nil {
				environment["source"] = c
				t.from(keyEnvironment+".source", key, v)
			}
		}},
	})
	switch {
	case !checkpoint:
		t.note(libconfig.Value{}, "checkpoint = false has no effect: the index of a dataset is "+
			"always stored, and brought up to date when it is read")
	case path != "":
		t.table["index_dir"] = path
	}
	if len(environment) > 0 {
		t.table[keyEnvironment] = environment
	}
	return t
}

// from notes the setting that gives a key of the table.
func (t *translation) from(key, setting string, v libconfig.Value) {
	t.settings[key] = origin{setting, v.Line}
}

func (t *translation) note(v libconfig.Value, format string, args ...any) {
	where := t.file
	if v.Line > 0 {
		where = fmt.Sprintf("%s, line %d", t.file, v.Line)
	}
	t.notes = append(t.notes, where+": "+fmt.Sprintf(format, args...))
}

func (t *translation) wrong(key string, v libconfig.Value, wrong, allowed string) {
	t.problems = append(t.problems, Problem{
		Key: key, Value: valueText(v), Source: fmt.Sprintf("%s, line %d", t.file, v.Line),
		Wrong: wrong, Allowed: allowed,
	})
}

// valueText is a value as messages show it.
func valueText(v libconfig.Value) string {
	switch a := v.Any.(type) {
	case libconfig.Group:
		return "{ ... }"
	case libconfig.List:
		return "( ... )"
	default:
		return fmt.Sprint(a)
	}
}

// group takes the settings of a group. It reports whether it is one, which messages describe so.
func (t *translation) group(path string, v libconfig.Value, group string,
	settings []setting,
) bool {
	g, ok := v.Any.(libconfig.Group)
	if !ok {
		t.wrong(strings.TrimSuffix(path, "."), v, "not a group", group)
		return false
	}
	var names []string
	for _, s := range settings {
		names = append(names, s.name)
	}
	for _, s := range g {
		i := slices.Index(names, s.Name)
		if i < 0 {
			near := human.Nearest(s.Name, names)
			t.wrong(path+s.Name, s.Value, "unknown key"+near, human.List(names))
			continue
		}
		settings[i].take(path+s.Name, s.Value)
	}
	return true
}

// settings is what a group has, for messages.
const settings = "settings in { }"

// number reads a number above 0. It reports whether it is one.
func (t *translation) number(key string, v libconfig.Value) (float64, bool) {
	var n float64
	switch a := v.Any.(type) {
	case int64:
		n = float64(a)
	case float64:
		n = a
	}
	if !(n > 0) || math.IsInf(n, 0) {
		t.wrong(key, v, "not a number above 0", "a number above 0")
		return 0, false
	}
	return n, true
}

func (t *translation) whole(key string, v libconfig.Value) (int64, bool) {
	n, ok := v.Any.(int64)
	if !ok || n < 1 || n > 1<<20 {
		t.wrong(key, v, "not a whole number in the range", "1 to 1048576")
		return 0, false
	}
	return n, true
}

func (t *translation) boolean(key string, v libconfig.Value) bool {
	b, ok := v.Any.(bool)
	if !ok {
		t.wrong(key, v, "not true or false", "true, false")
	}
	return b
}

func (t *translation) text(key string, v libconfig.Value) string {
	s, ok := v.Any.(string)
	if !ok || s == "" {
		t.wrong(key, v, "not a text", `text in quotes, such as "/tmp"`)
	}
	if t.toml && !utf8.ValidString(s) {
		t.wrong(key, v, "not UTF-8, which a TOML file has to be: rename the directory, or configure "+
			"jobs with this file as it is", "")
	}
	return s
}

// list returns the values of a list. It has at least one.
func (t *translation) list(key string, v libconfig.Value, of, such string) libconfig.List {
	l, ok := v.Any.(libconfig.List)
	if !ok || len(l) == 0 {
		t.wrong(key, v, "not a list of "+of, of+" in ( ), such as ( "+such+" )")
		return nil
	}
	return l
}

// curve reads a throughput by the number of clients, which are called what; nil if it is wrong. A
// throughput that falls as clients are added is taken as what fewer of them get, which is what the
// model does with more clients than are useful.
// The curve is what the key of this table has; "": none.
func (t *translation) curve(key string, v libconfig.Value, what, table string) map[string]any {
	points := map[int64]float64{}
	such := "{ " + what + " = 1; bw = 66; }"
	for i, entry := range t.list(key, v, "groups of "+what+" and bw", such) {
		path := fmt.Sprintf("%s[%d].", key, i)
		var clients int64
		var rate float64
		var bw libconfig.Value
		isGroup := t.group(path, entry, such, []setting{
			{what, func(key string, v libconfig.Value) { clients, _ = t.whole(key, v) }},
			{"bw", func(key string, v libconfig.Value) {
				bw = v
				rate, _ = t.number(key, v)
			}},
		})
		switch _, twice := points[clients]; {
		case !isGroup:
		case clients == 0 || rate == 0:
			t.missing(path, entry, []string{what, "bw"})
		case twice:
			t.wrong(path+what, entry, fmt.Sprintf("%d is there twice", clients), "")
		default:
			points[clients] = rate
			t.from(fmt.Sprintf("%s.%d", table, clients), path+"bw", bw)
		}
	}
	if len(points) == 0 {
		return nil
	}
	curve := map[string]any{}
	most := 0.0
	for _, clients := range slices.Sorted(maps.Keys(points)) {
		if points[clients] < most {
			t.note(v, "%s: %g MB/s of %d %s is taken as %g, which fewer get", key, points[clients],
				clients, what, most)
		}
		most = max(most, points[clients])
		curve[strconv.FormatInt(clients, 10)] = most
	}
	return curve
}

// missing notes the settings that a group lacks.
func (t *translation) missing(path string, v libconfig.Value, names []string) {
	g, _ := v.Any.(libconfig.Group)
	for _, name := range names {
		has := func(s libconfig.Setting) bool { return s.Name == name }
		if !slices.ContainsFunc(g, has) {
			where := fmt.Sprintf("%s, line %d", t.file, v.Line)
			t.problems = append(t.problems, Problem{Source: where, Wrong: path + name + " is missing"})
		}
	}
}

// classes reads storage_classes: the staging buffer, and then the classes, fastest first.
func (t *translation) classes(key string, v libconfig.Value) {
	var entries []any // as TOML has them
	for i, entry := range t.list(key, v, "storage classes, the staging buffer first,",
		"{ capacity: 1024; threads: 2; }") {
		path := fmt.Sprintf("%s[%d].", key, i)
		if i == 0 {
			t.staging(path, entry)
		} else if class := t.class(path, fmt.Sprintf("%s[%d]", keyStorageClass, i-1), entry); class !=
			nil {
			entries = append(entries, class)
		}
	}
	if entries != nil {
		t.table[keyStorageClass] = entries
	}
}

// size takes MB (1e6 bytes).
func (t *translation) size(key string, v libconfig.Value) string {
	n, ok := t.number(key, v)
	if !ok {
		return ""
	}
	return strconv.FormatFloat(n, 'f', -1, 64) + "MB"
}

func (t *translation) staging(path string, entry libconfig.Value) {
	isGroup := t.group(path, entry, settings, []setting{
		{"capacity", func(key string, v libconfig.Value) {
			if size := t.size(key, v); size != "" {
				t.table["staging_buffer"] = size
				t.from("staging_buffer", key, v)
			}
		}},
		{"threads", func(key string, v libconfig.Value) {
			if n, ok := t.whole(key, v); ok {
				t.table["source_threads"] = n
				t.from("source_threads", key, v)
			}
		}},
		{"bandwidth", func(key string, v libconfig.Value) {
			if t.curve(key, v, "threads", "") != nil {
				t.note(v, "%s has no effect: training uses samples where they lie in the staging "+
					"buffer", key)
			}
		}},
	})
	if isGroup {
		t.missing(path, entry, []string{"capacity"})
	}
}

// class returns a storage class as the entry of [[storage_class]] that table names; nil if it is
// wrong.
func (t *translation) class(path, table string, entry libconfig.Value) map[string]any {
	class := map[string]any{}
	backend, dir := "", ""
	wrong := len(t.problems)
	isGroup := t.group(path, entry, settings, []setting{
		{"capacity", func(key string, v libconfig.Value) {
			class[store.CapacityKey] = t.size(key, v)
			t.from(table+"."+store.CapacityKey, key, v)
		}},
		{"backend", func(key string, v libconfig.Value) {
			backend, _ = v.Any.(string)
			if class["kind"] = t.backend(backend); class["kind"] == "" {
				t.wrong(key, v, "unknown backend", backendMemory+", "+backendFiles)
			}
		}},
		{"backend_options", func(key string, v libconfig.Value) {
			path := func(key string, v libconfig.Value) {
				dir = t.text(key, v)
				t.from(table+"."+store.PathKey, key, v)
			}
			t.group(key+".", v, `{ path: "/tmp"; }`, []setting{{"path", path}})
		}},
		{"threads", func(key string, v libconfig.Value) {
			class["threads"], _ = t.whole(key, v)
			t.from(table+".threads", key, v)
		}},
		{"bandwidth", func(key string, v libconfig.Value) {
			class["read"] = t.curve(key, v, "threads", table+".read")
			t.from(table+".read", key, v)
		}},
	})
	if !isGroup {
		return nil
	}
	t.missing(path, entry, []string{"capacity", "backend"})
	line := libconfig.Value{Line: entry.Line, Any: dir}
	switch {
	case backend == backendFiles && dir == "":
		t.wrong(path+"backend_options.path", line, "missing", "the directory of the class")
	case backend == backendMemory && dir != "":
		t.wrong(path+"backend_options.path", line, "a class in memory has no path", "")
	case dir != "":
		class[store.PathKey] = dir
	}
	if len(t.problems) > wrong {
		return nil
	}
	return class
}

// The thesis's backends of storage classes.
const (
	backendMemory = "memory"
	backendFiles  = "filesystem"
)

// backend returns the kind of storage class of a backend; "": there is none.
func (t *translation) backend(name string) string {
	for _, k := range t.kinds {
		if name == backendMemory && k.Memory || name == backendFiles && k.Has(store.PathKey) {
			return k.Name
		}
	}
	return ""
}

// Convert returns the text of a libconfig file (thesis, listing 4.7) as that of a TOML file. What
// has no effect, or another one, is said in comments. The error joins a *Problem for each mistake.
func Convert(file, text string, kinds []store.Kind) (string, error) {
	t := translate(file, text, kinds, true)
	var problems []error
	for i := range t.problems {
		problems = append(problems, &t.problems[i])
	}
	if len(problems) == 0 { // what a job with the converted file would refuse on any machine
		r := resolver{
			input: Input{Classes: kinds}, config: &Config{Origins: map[string]Origin{}},
			given: map[string]given{}, file: file, settings: t.settings,
		}
		r.readTable(t.table)
		r.parse()
		r.derive()
		r.validate()
		problems = r.problems
	}
	if err := errors.Join(problems...); err != nil {
		return "", err
	}
	var b strings.Builder
	for _, note := range t.notes {
		comment(&b, strings.ToValidUTF8(note, "?")+".")
	}
	table, err := toml.Marshal(t.table)
	if err != nil {
		return "", err
	}
	return b.String() + byNumber(string(table)), nil
}

// byNumber sorts lines whose keys are numbers, one after another, by these.
func byNumber(table string) string {
	lines := strings.SplitAfter(table, "\n")
	number := func(line string) (int, bool) {
		key, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.Atoi(strings.Trim(key, `'"`))
		return n, err == nil
	}
	for begin := 0; begin < len(lines); begin++ {
		end := begin
		for end < len(lines) {
			if _, is := number(lines[end]); !is {
				break
			}
			end++
		}
		slices.SortFunc(lines[begin:end], func(a, b string) int {
			first, _ := number(a)
			second, _ := number(b)
			return first - second
		})
		begin = end
	}
	return strings.Join(lines, "")
}
