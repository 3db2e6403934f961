package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/hdmlp/hdmlp/internal/lib/files"
	"github.com/hdmlp/hdmlp/internal/plan/audit"
)

const (
	// mostState is the size limit of a file with states, in bytes.
	mostState = 64 << 20
	// mostEpoch is the number of epochs that a run has at most.
	mostEpoch = 1 << 32
	// randomScheme is SCHEME of python/hdmlp/_transforms/keys.py.
	randomScheme = 2
)

// runState is a state, with what its rank was given. docs/FORMATS.md describes it.
type runState struct {
	loaderState
	Random    int             `json:"random"`
	Order     json.RawMessage `json:"order"`
	Steps     int             `json:"steps"`
	Delivered []statePart     `json:"delivered"`
	file      string
	keys      []string // in the file, under which it is
}

type statePart struct {
	ID        string `json:"id"`
	Rank      int    `json:"rank"`
	WorldSize int    `json:"world_size"`
	From      []int  `json:"from"` // epoch and step
	To        []int  `json:"to"`
	Samples   int64  `json:"samples"`
	Sum       string `json:"sum"`
	Dropped   int    `json:"dropped"`
}

// stateKey is a key that a state has, or a part of one, and what it may be.
type stateKey struct {
	key, want string
	null      bool // it may be null
	absent    bool // it may be absent
}

var (
	stateKeys = []stateKey{
		{key: "version", want: "1"},
		{key: "random", want: strconv.Itoa(randomScheme)},
		{key: "kind", want: "sampler, or no such key", absent: true},
		{key: "epoch", want: "a whole number, at least 0"},
		{key: "step", want: "a whole number, at least 0"},
		{key: "steps", want: "a whole number, at least 1"},
		{key: "fingerprint", want: "32 hexadecimal digits"},
		{key: "samples", want: "a whole number, at least 1"},
		{key: "seed", want: "a whole number from 0 to 2^64-1"},
		{key: "subset", want: "16 hexadecimal digits, or null", null: true},
		{key: "mix", want: "sizes, weights, entries and single, or no such key", absent: true},
		{key: "order", want: "null", null: true},
		{key: "shuffle", want: "torch, feistel or none"},
		{key: "scheme", want: "strided, uniform, whole or imbalanced"},
		{key: "tail", want: "pad, keep or drop"},
		{key: "drop_last", want: "true or false"},
		{key: "global_batch", want: "a whole number, at least 1"},
		{key: "delivered", want: "a list of what the rank was given"},
	}
	partKeys = []stateKey{
		{key: "id", want: "16 hexadecimal digits"},
		{key: "rank", want: "a whole number, at least 0"},
		{key: "world_size", want: "a whole number, at least 1"},
		{key: "from", want: "epoch and step, as in [0, 0]"},
		{key: "to", want: "epoch and step, as in [1, 0]"},
		{key: "samples", want: "a whole number, at least 0"},
		{key: "sum", want: "16 hexadecimal digits"},
		{key: "dropped", want: "a whole number, at least 1, or no such key", absent: true},
	}
	mixKeys = []stateKey{
		{key: "sizes", want: "a list of whole numbers"},
		{key: "weights", want: "a list of lists of whole numbers"},
		{key: "entries", want: "a whole number, at least 1"},
		{key: "single", want: "true or false"},
	}
)

// readStates reads the states in the files: those under a key, if it is not empty.
func readStates(paths []string, under string, in io.Reader) (states []runState, err error) {
	for i, path := range paths {
		var data []byte
		name := path
		if path == "-" {
			name = "standard input"
			if slices.Contains(paths[:i], path) {
				return nil, badInput("-: standard input can be given once; give files")
			}
			data, err = io.ReadAll(io.LimitReader(in, mostState))
		} else {
			data, err = files.Read(path, mostState)
		}
		if err != nil {
			return nil, badInput("%s: cannot read the state: %w", name, withoutPath(err))
		}
		value, err := decodeState(data)
		if err != nil {
			return nil, badInput("%s: %w", name, err)
		}
		found := len(states)
		var others []string
		for _, one := range statesIn(value, nil) {
			if under != "" && !slices.Contains(one.keys, under) {
				others = append(others, strings.Join(one.keys, "."))
				continue
			}
			s := runState{file: name, keys: one.keys}
			if err := s.read(one.value); err != nil {
				return nil, err
			}
			states = append(states, s)
		}
		switch {
		case len(states) > found:
		case len(others) > 0:
			return nil, badInput("%s: there is no state under --key %s in it; states are under %q", name,
				under, others)
		default:
			return nil, badInput("%s: there is no state of an HDMLP loader in it", name)
		}
	}
	return states, nil
}

// withoutPath returns an error of the file system without the path.
func withoutPath(err error) error {
	var named *os.PathError
	if errors.As(err, &named) {
		return named.Err
	}
	return err
}

// whyNotJSON is what to add to a message about a file that is not the JSON that is expected.
func whyNotJSON(err error) string {
	var typed *json.UnmarshalTypeError
	switch {
	case err == nil:
		return ": it is null"
	case errors.As(err, &typed) && typed.Field != "":
		return fmt.Sprintf(": %s is a JSON %s", typed.Field, typed.Value)
	case errors.As(err, &typed):
		return fmt.Sprintf(": there is a JSON %s", typed.Value)
	}
	return ": " + err.Error()
}

// pythons are numbers that Python writes although JSON has none. No key of a state is one.
var pythons = [...]string{"-Infinity", "Infinity", "NaN"}

// withoutPythons replaces numbers that JSON does not have by 0, in place.
func withoutPythons(data []byte) {
	inText := false
	for i := 0; i < len(data); i++ {
		switch {
		case data[i] == '"':
			inText = !inText
		case inText && data[i] == '\\':
			i++
		case inText:
		default:
			for _, number := range pythons {
				if bytes.HasPrefix(data[i:], []byte(number)) {
					copy(data[i:], "0"+strings.Repeat(" ", len(number)-1))
				}
			}
		}
	}
}

// decodeState returns the one JSON value of a file, whose bytes it may change.
func decodeState(data []byte) (value any, err error) {
	withoutPythons(data)
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber() // seeds have 64 bits
	if err := decoder.Decode(&value); err != nil {
		return nil, fmt.Errorf("not JSON (%w): give what json.dump(loader.state_dict(), file) wrote; "+
			"of a checkpoint of torch, save the loader's state so first", err)
	}
	end := decoder.InputOffset()
	if rest := bytes.TrimSpace(data[end:]); len(rest) > 0 {
		return nil, fmt.Errorf("after the JSON value, which ends at byte %d, there is %.20q: a file "+
			"has one value, as json.dump writes it; several states are a list, or files of their own",
			end, rest)
	}
	if key, twice := repeatedKey(data); twice {
		return nil, fmt.Errorf("an object has the key %s twice: the file was changed; a key is there "+
			"once, as json.dump writes it", key)
	}
	return value, nil
}

// repeatedKey returns a key that an object of a JSON value has twice.
func repeatedKey(data []byte) (key string, twice bool) {
	type level struct {
		keys map[string]bool // nil: an array
		next bool            // a key follows
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	levels := []level{{}}
	for {
		token, err := decoder.Token()
		if err != nil { // the end, as the value was decoded before
			return "", false
		}
		top := &levels[len(levels)-1]
		if name, is := token.(string); is && top.next {
			if top.keys[name] {
				return name, true
			}
			top.keys[name], top.next = true, false
			continue
		}
		switch token {
		case json.Delim('{'):
			levels = append(levels, level{map[string]bool{}, true})
			continue
		case json.Delim('['):
			levels = append(levels, level{})
			continue
		case json.Delim('}'), json.Delim(']'):
			levels = levels[:len(levels)-1]
			top = &levels[len(levels)-1]
		}
		top.next = top.keys != nil
	}
}

// found is an object in a file, and the keys under which it is there.
type found struct {
	value map[string]any
	keys  []string
}

// statesIn returns the objects in a value that are states, also where they lack a key.
func statesIn(value any, keys []string) (states []found) {
	switch v := value.(type) {
	case []any:
		for _, one := range v {
			states = append(states, statesIn(one, keys)...)
		}
	case map[string]any:
		if v["kind"] == "sampler" && v["version"] != nil {
			return []found{{v, keys}}
		}
		has := 0
		for _, key := range []string{"global_batch", "fingerprint", "delivered", "drop_last"} {
			if _, is := v[key]; is {
				has++
			}
		}
		if has > 1 {
			return []found{{v, keys}}
		}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			states = append(states, statesIn(v[key], append(slices.Clone(keys), key))...)
		}
	}
	return states
}

// read takes a state, and checks what it says by itself.
func (s *runState) read(value map[string]any) error {
	if value["kind"] == "sampler" {
		return badInput("%s: the state of a loader whose order a sampler drew, or whose dataset "+
			"HDMLP does not read itself: it does not say what its rank was given; loaders with seed= or "+
			"shard=True of datasets that HDMLP reads, such as hdmlp.torch.ImageFolder, can be verified",
			s.file)
	}
	if value["delivered"] == nil {
		return badInput("%s: the state does not say what its rank was given (delivered): an earlier "+
			"release saved it, or it was changed", s.file)
	}
	if value["order"] != nil {
		return badInput("%s: a policy made an order of its own, from the caches of the nodes, which "+
			"the state does not have; such runs are checked while they run, by verify=True", s.file)
	}
	known, err := onlyKeys(s.file, "", value, stateKeys)
	if err != nil {
		return err
	}
	if mix, is := value["mix"].(map[string]any); is {
		if known["mix"], err = onlyKeys(s.file, "mix.", mix, mixKeys); err != nil {
			return err
		}
	}
	if parts, is := value["delivered"].([]any); is {
		checked := slices.Clone(parts)
		for i := range parts {
			where := fmt.Sprintf("delivered[%d]", i)
			part, is := parts[i].(map[string]any)
			if !is {
				return badInput("%s: %s is no object: the state was changed", s.file, where)
			}
			if checked[i], err = onlyKeys(s.file, where+".", part, partKeys); err != nil {
				return err
			}
		}
		known["delivered"] = checked
	}
	data, err := json.Marshal(known)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, s); err != nil {
		var typed *json.UnmarshalTypeError
		if errors.As(err, &typed) {
			field := strings.TrimPrefix(typed.Field, "loaderState.")
			article := "a"
			if typed.Value == "object" || typed.Value == "array" {
				article = "an"
			}
			return badInput("%s: %s is %s %s: the state was changed%s", s.file, field, article,
				typed.Value, expected(field))
		}
		return badInput("%s: the state was changed: %w", s.file, err)
	}
	switch {
	case s.Version != 1:
		return badInput("%s: version is %d, and this release reads 1", s.file, s.Version)
	case s.Random != randomScheme:
		return badInput("%s: random is %d, and this release reads %d", s.file, s.Random, randomScheme)
	case len(s.Fingerprint) != 32 || strings.Trim(s.Fingerprint, "0123456789abcdef") != "":
		return badInput("%s: fingerprint is %q: the state was changed%s", s.file, s.Fingerprint,
			expected("fingerprint"))
	case s.Steps < 1:
		return badInput("%s: steps is %d: the state was changed%s", s.file, s.Steps, expected("steps"))
	}
	return nil
}

// onlyKeys returns an object with these keys alone, of which none that must be there is missing.
func onlyKeys(
	file, where string, value map[string]any, keys []stateKey,
) (known map[string]any, err error) {
	known = map[string]any{}
	for _, k := range keys {
		got, is := value[k.key]
		switch {
		case !is && k.absent:
			continue
		case !is:
			return nil, badInput("%s: %s%s is missing: the state was changed; expected %s", file, where,
				k.key, k.want)
		case got == nil && !k.null:
			return nil, badInput("%s: %s%s is null: the state was changed; expected %s", file, where,
				k.key, k.want)
		}
		known[k.key] = got
	}
	return known, nil
}

// expected is what messages say of what a key may be, by its name in JSON.
func expected(field string) string {
	keys, name := stateKeys, field
	if part, is := strings.CutPrefix(field, "delivered."); is {
		keys, name = partKeys, part
	} else if part, is := strings.CutPrefix(field, "mix."); is {
		keys, name = mixKeys, part
	}
	for _, k := range keys {
		if k.key == name {
			return "; expected " + k.want
		}
	}
	return ""
}

// pieces returns what the state's rank was given.
func (s *runState) pieces() (pieces []audit.Piece, err error) {
	end := [2]int{s.Epoch, s.Step}
	ids := map[string]int{}
	for i, p := range s.Delivered {
		where := fmt.Sprintf("%s: delivered[%d]", s.file, i)
		sum, err := strconv.ParseUint(p.Sum, 16, 64)
		if err != nil || len(p.Sum) != 16 {
			return nil, badInput("%s: sum is %q, and not 16 hexadecimal digits: the state was changed",
				where, p.Sum)
		}
		if _, err := strconv.ParseUint(p.ID, 16, 64); err != nil || len(p.ID) != 16 {
			return nil, badInput("%s: id is %q, and not 16 hexadecimal digits: the state was changed",
				where, p.ID)
		}
		if first, is := ids[p.ID]; is {
			return nil, badInput("%s: it has the id of delivered[%d], %s: the state was changed; each "+
				"has an id of its own", where, first, p.ID)
		}
		ids[p.ID] = i
		if p.Dropped < 0 || p.Dropped > 0 && i > 0 {
			return nil, badInput("%s: dropped is %d: the state was changed; the first entry alone has "+
				"it, if an earlier one was dropped", where, p.Dropped)
		}
		if p.WorldSize < 1 || p.WorldSize > 1<<20 || p.Rank < 0 || p.Rank >= p.WorldSize {
			return nil, badInput("%s: rank %d of %d: the state was changed", where, p.Rank, p.WorldSize)
		}
		from, err := s.position(where, "from", p.From)
		if err != nil {
			return nil, err
		}
		to, err := s.position(where, "to", p.To)
		if err != nil {
			return nil, err
		}
		if from >= to {
			return nil, badInput("%s: from is %v and to is %v: the state was changed; expected a to "+
				"after from", where, p.From, p.To)
		}
		end = [2]int(p.To)
		piece := audit.Piece{
			ID: p.ID, Rank: p.Rank, WorldSize: p.WorldSize, From: from, To: to, Samples: p.Samples,
			Sum: sum, Dropped: p.Dropped,
		}
		if i > 0 {
			piece.After = s.Delivered[i-1].ID
		}
		pieces = append(pieces, piece)
	}
	if end != [2]int{s.Epoch, s.Step} {
		return nil, badInput("%s: epoch is %d and step is %d, and delivered ends at epoch %d, step "+
			"%d: the state was changed, or saved after set_epoch and before the next batch; expected a "+
			"state that was saved after a batch", s.file, s.Epoch, s.Step, end[0], end[1])
	}
	return pieces, nil
}

// position returns the run's step of an epoch and its step.
func (s *runState) position(where, key string, place []int) (int, error) {
	switch {
	case len(place) != 2:
		return 0, badInput("%s: %s has %s: the state was changed; expected 2, epoch and step, as in "+
			"[0, 0]", where, key, count(len(place), "number"))
	case place[0] < 0 || place[0] > mostEpoch:
		return 0, badInput("%s: %s is epoch %d, out of range (0 to 2^32): the state was changed", where,
			key, place[0])
	case place[1] < 0 || place[1] >= s.Steps:
		return 0, badInput("%s: %s is step %d of epoch %d, and an epoch has %d steps: the state was "+
			"changed", where, key, place[1], place[0], s.Steps)
	}
	return place[0]*s.Steps + place[1], nil
}
