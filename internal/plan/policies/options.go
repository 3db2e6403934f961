package policies

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/plan"
)

// Optional is a policy with options in the simulator. Each is true or false.
type Optional interface {
	plan.Policy
	// Options returns the options with the values that the policy has without them.
	Options() map[string]bool
	// With returns the policy under another name and with other values, given for all options.
	With(name string, options map[string]bool) plan.Policy
}

// Unknown is the error of a name that no policy has.
type Unknown struct{ Name string }

func (e *Unknown) Error() string {
	return fmt.Sprintf("policy %q is unknown; allowed: %s", e.Name, strings.Join(Names(All()), ", "))
}

// WrongOption is the error of an option that a policy does not have, or of its value.
type WrongOption struct{ Policy, Wrong, Allowed string }

func (e *WrongOption) Error() string {
	text := fmt.Sprintf("policy %q: %s", e.Policy, e.Wrong)
	if e.Allowed != "" {
		text += "; allowed: " + e.Allowed
	}
	return text
}

// Parse returns the policy that a text names, for the simulator: its name, and after it options,
// each after a colon, such as frequency:in_order=false:cleanup_read=true. A policy with options has
// the text as its name. The error is an *Unknown or a *WrongOption.
func Parse(text string) (plan.Policy, error) {
	name, rest, given := strings.Cut(text, ":")
	p, err := ForSimulator(name)
	if err != nil {
		return nil, &Unknown{name}
	}
	if !given {
		return p, nil
	}
	optional, ok := p.(Optional)
	if !ok {
		return nil, &WrongOption{
			Policy: text, Wrong: name + " has no options", Allowed: "the name alone",
		}
	}
	values := optional.Options()
	names := slices.Sorted(maps.Keys(values))
	for option := range strings.SplitSeq(rest, ":") {
		key, value, _ := strings.Cut(option, "=")
		if _, ok := values[key]; !ok {
			return nil, &WrongOption{
				Policy: text, Wrong: fmt.Sprintf("%s has no option %q%s", name, key,
					human.Nearest(key, names)), Allowed: human.List(names),
			}
		}
		if value != "true" && value != "false" {
			return nil, &WrongOption{
				Policy: text, Wrong: fmt.Sprintf("%s is %q", key, value), Allowed: "true or false",
			}
		}
		values[key] = value == "true"
	}
	return optional.With(text, values), nil
}
