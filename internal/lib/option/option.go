// Package option describes parameters in tables: each has a key, a kind of value, a range, a
// default and a help text. Values come as texts, or as JSON and TOML have them; errors name the
// key, the value and what is allowed. The configuration is such a table, and each kind of source
// and of storage class has one of its own.
//
// The package keeps no state, and takes nothing from the process but the user's home directory.
package option

import (
	"fmt"
	"slices"
	"time"

	"github.com/hdmlp/hdmlp/internal/lib/human"
)

// Kind is the type of a parameter's value, which determines how its text is parsed.
type Kind string

// The kinds of parameters, and the types of their values.
const (
	Size     Kind = "size"     // int64, bytes: "10GB", "64MiB", 1048576
	Int      Kind = "int"      // int, a whole number
	Duration Kind = "duration" // time.Duration: "30s", "2m"; a plain number is seconds
	Enum     Kind = "enum"     // string, one of Option.Values
	Path     Kind = "path"     // string, an absolute path, or one below "~/"; may be empty
	Address  Kind = "address"  // string, "host:port"; may be empty
	Switch   Kind = "switch"   // bool, on or off; true and false as well
	Text     Kind = "text"     // string, any text; may be empty
	// Network is a string, an interface, address, network or name of this host; may be empty.
	Network Kind = "network"
	List    Kind = "list" // []string, texts with commas between them, or a list of texts
)

// Auto is the text that stands for a derived or measured value.
const Auto = "auto"

// Option is one parameter.
type Option struct {
	Key     string
	Kind    Kind
	Default string   // as a user would write it; Auto: derived, or measured on this machine
	Derived string   // what Auto stands for, in words
	Values  []string // allowed values of an Enum
	// Parse, if not nil, parses the values of an Enum, which may have more to them than Values.
	Parse func(text string) (string, error)
	Min   int64  // in bytes, a count, or nanoseconds; of a Text: bytes
	Max   int64  // in the same unit; 0: no limit
	Help  string // one sentence, without its full stop
	// Required means that it has no default, and that an empty value is none.
	Required bool
	// Job is the key of a job's configuration that gives an option of a kind its value; "": none.
	Job string
}

// Find returns the option of this key, and whether there is one.
func Find(options []Option, key string) (Option, bool) {
	i := slices.IndexFunc(options, func(o Option) bool { return o.Key == key })
	if i < 0 {
		return Option{}, false
	}
	return options[i], true
}

// Values holds the values of options by key, of the types that their kinds have. A missing one is
// the default.
type Values map[string]any

// Get returns the value of a key; zero if it is missing. It panics if the value is of another type.
func Get[T any](values Values, key string) (value T) {
	if v, ok := values[key]; ok {
		return v.(T)
	}
	return value
}

// Holds reports whether the value is of the type that the option's kind has.
func (o Option) Holds(value any) bool {
	switch o.Kind {
	case Switch:
		_, ok := value.(bool)
		return ok
	case List:
		_, ok := value.([]string)
		return ok
	case Size:
		_, ok := value.(int64)
		return ok
	case Int:
		_, ok := value.(int)
		return ok
	case Duration:
		_, ok := value.(time.Duration)
		return ok
	}
	_, ok := value.(string)
	return ok
}

// Error is a wrong value of one key.
type Error struct {
	Key     string
	Value   string // as it was given
	Wrong   string // what is wrong with it
	Allowed string // what is allowed; may be empty
	Err     error  // the cause; may be nil
}

func (e *Error) Error() string {
	text := fmt.Sprintf("%s = %q: %s", e.Key, e.Value, e.Wrong)
	if e.Allowed != "" {
		text += "; allowed: " + e.Allowed
	}
	return text
}

// Unwrap returns the cause, or nil.
func (e *Error) Unwrap() error { return e.Err }

// Unknown returns the error for a key that is none of those that there are.
func Unknown(key string, value any, keys []string) *Error {
	text, _ := TextOf(value)
	return &Error{
		Key: key, Value: text, Wrong: "unknown key" + human.Nearest(key, keys),
		Allowed: human.List(keys),
	}
}
